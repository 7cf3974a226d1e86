# apache with a thread for each connection that is at work.
model=event
. "$scripts/apache.sh"
