//! The user that a service runs as.
//! Promises: switches the groups, the group and the user, in this order, for every thread; fails if the process could
//! become root again; the sockets that are open belong to the user then.
//! Source: setuid(2), setgroups(2); the C library applies them to all threads.

use std::os::unix::fs::FileTypeExt;
use std::str::FromStr;

use nix::unistd::{self, Gid, Group, Uid};

use crate::failure::Failure;

/// A user and a group to switch to.
#[derive(Clone, Debug)]
pub struct User {
    text: String,
    user: Uid,
    group: Gid,
}

impl FromStr for User {
    type Err = String;

    /// Parses `USER` or `USER:GROUP`; both may be numbers.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
        let known = match name.parse() {
            Ok(number) => unistd::User::from_uid(Uid::from_raw(number)),
            Err(_) => unistd::User::from_name(name),
        };
        let known = known.map_err(|error| format!("cannot look up the user `{name}`: {error}"))?;
        let by_number = name.parse().map(Uid::from_raw).ok();
        let user = known.as_ref().map(|user| user.uid).or(by_number);
        let user = user.ok_or_else(|| format!("there is no user `{name}`"))?;
        let group = match group {
            Some(group) => group_of(group)?,
            None => known
                .map(|user| user.gid)
                .ok_or_else(|| format!("there is no user {name}, so give its group too: `{name}:GROUP`"))?,
        };
        if user.is_root() {
            return Err("to stay root, leave `user` out".to_owned());
        }
        Ok(Self { text: text.to_owned(), user, group })
    }
}

impl<'de> serde::Deserialize<'de> for User {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl User {
    /// Switches all threads to the user, irrevocably.
    ///
    /// Errors: the process is not root, or could become root again.
    pub fn switch(&self) -> Result<(), Failure> {
        let refused = |what: &str| {
            let text = &self.text;
            let what = what.to_owned();
            move |error: nix::Error| {
                Failure::failed(format!("cannot switch to the user `{text}`: {what}: {error}; only root can"))
            }
        };
        if Uid::effective() == self.user && Uid::current() == self.user {
            return Ok(());
        }
        unistd::setgroups(&[self.group]).map_err(refused("setgroups"))?;
        unistd::setgid(self.group).map_err(refused("setgid"))?;
        // Sockets that other threads open from here on belong to the user.
        let before = Uid::effective();
        unistd::seteuid(self.user).map_err(refused("seteuid"))?;
        self.take_sockets(before);
        unistd::setresuid(self.user, self.user, self.user).map_err(refused("setresuid"))?;
        if unistd::setuid(Uid::from_raw(0)).is_ok() {
            return Err(Failure::failed(format!(
                "switched to `{}`, but the process could become root again",
                self.text
            )));
        }
        Ok(())
    }

    /// Gives the open sockets to the user, with the rights that this thread had as `before`: processes of the user know
    /// each other's sockets by their owner (sock_diag(7)). One that is not given stays usable.
    fn take_sockets(&self, before: Uid) {
        let is_before =
            rustix::thread::set_thread_res_uid(None, rustix::process::Uid::from_raw(before.as_raw()), None);
        let (Ok(()), Ok(descriptors)) = (is_before, std::fs::read_dir("/proc/self/fd")) else { return };
        let (user, group) = self.ids();
        for path in descriptors.flatten().map(|entry| entry.path()) {
            if std::fs::metadata(&path).is_ok_and(|descriptor| descriptor.file_type().is_socket()) {
                let _ = std::os::unix::fs::chown(&path, Some(user), Some(group));
            }
        }
    }

    /// Its user id and group id.
    pub fn ids(&self) -> (u32, u32) {
        (self.user.as_raw(), self.group.as_raw())
    }
}

fn group_of(group: &str) -> Result<Gid, String> {
    if let Ok(number) = group.parse() {
        return Ok(Gid::from_raw(number));
    }
    let known =
        Group::from_name(group).map_err(|error| format!("cannot look up the group `{group}`: {error}"))?;
    known.map(|group| group.gid).ok_or_else(|| format!("there is no group `{group}`"))
}

/// Whether this process is root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The name of the user of this process, or its number.
pub fn name() -> String {
    let own = Uid::effective();
    unistd::User::from_uid(own).ok().flatten().map_or_else(|| own.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::User;

    fn check(text: &str, expected: Result<(u32, u32), &str>) {
        let read = text.parse::<User>();
        let read = read.as_ref().map(User::ids).map_err(String::as_str);
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn users_and_groups_by_name_or_number() {
        check("65534:65534", Ok((65534, 65534)));
        check("61234:61235", Ok((61234, 61235)));
        check("no-such-user", Err("there is no user `no-such-user`"));
        check("61234", Err("there is no user 61234, so give its group too: `61234:GROUP`"));
        check("65534:no-such-group", Err("there is no group `no-such-group`"));
        check("0:0", Err("to stay root, leave `user` out"));
    }
}
