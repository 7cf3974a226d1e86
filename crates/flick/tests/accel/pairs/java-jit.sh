# Java whose code may move.
. "$scripts/java.sh"
