//! TCP sockets. All are opened non-blocking and close-on-exec.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use libc::{c_int, c_void, socklen_t};

use super::{check, check_len, close};
use crate::buffer::Buf;
use crate::engine::{Fd, Shutdown, SocketOptions};

/// A socket address in the kernel's layout.
pub(crate) struct RawAddr {
    storage: libc::sockaddr_storage,
    len: socklen_t,
}

impl RawAddr {
    fn empty() -> Self {
        // SAFETY: all-zero bytes are a valid sockaddr_storage.
        let storage = unsafe { mem::zeroed() };
        RawAddr {
            storage,
            len: size_of::<libc::sockaddr_storage>() as socklen_t,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        ptr::from_ref(&self.storage).cast()
    }

    pub(crate) fn len(&self) -> socklen_t {
        self.len
    }

    fn to_addr(&self) -> io::Result<SocketAddr> {
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that the storage holds a sockaddr_in, which it is large
                // and aligned enough for.
                let v4 = unsafe { &*ptr::from_ref(&self.storage).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddr::V4(SocketAddrV4::new(
                    ip,
                    u16::from_be(v4.sin_port),
                )))
            }
            libc::AF_INET6 => {
                // SAFETY: as above, for a sockaddr_in6.
                let v6 = unsafe { &*ptr::from_ref(&self.storage).cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                let (flow, scope) = (v6.sin6_flowinfo, v6.sin6_scope_id);
                Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope)))
            }
            _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        }
    }
}

impl From<&SocketAddr> for RawAddr {
    fn from(addr: &SocketAddr) -> Self {
        let mut raw = RawAddr::empty();
        match addr {
            SocketAddr::V4(v4) => {
                let place = ptr::from_mut(&mut raw.storage).cast::<libc::sockaddr_in>();
                // SAFETY: sockaddr_storage is large and aligned enough for a sockaddr_in.
                unsafe {
                    (*place).sin_family = libc::AF_INET as libc::sa_family_t;
                    (*place).sin_port = v4.port().to_be();
                    (*place).sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                }
                raw.len = size_of::<libc::sockaddr_in>() as socklen_t;
            }
            SocketAddr::V6(v6) => {
                let place = ptr::from_mut(&mut raw.storage).cast::<libc::sockaddr_in6>();
                // SAFETY: sockaddr_storage is large and aligned enough for a sockaddr_in6.
                unsafe {
                    (*place).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                    (*place).sin6_port = v6.port().to_be();
                    (*place).sin6_flowinfo = v6.flowinfo();
                    (*place).sin6_addr.s6_addr = v6.ip().octets();
                    (*place).sin6_scope_id = v6.scope_id();
                }
                raw.len = size_of::<libc::sockaddr_in6>() as socklen_t;
            }
        }
        raw
    }
}

/// Sets an integer option.
fn set_option(fd: Fd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` lives through the call and `len` is its size.
    check(unsafe { libc::setsockopt(fd.0, level, name, ptr::from_ref(&value).cast(), len) })
        .map(drop)
}

/// Reads an integer option.
fn option(fd: Fd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    let place = ptr::from_mut(&mut value).cast();
    // SAFETY: `place` has room for `len` bytes.
    check(unsafe { libc::getsockopt(fd.0, level, name, place, &mut len) })?;
    Ok(value)
}

/// A new TCP socket of the family of `addr`.
pub fn tcp(addr: &SocketAddr) -> io::Result<Fd> {
    let family = if addr.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    check(unsafe { libc::socket(family, kind, 0) }).map(Fd)
}

/// Sets `TCP_NODELAY` and the keepalive values. On a listening socket they are inherited by the
/// connections that it accepts, which saves five calls for each.
pub fn set_options(fd: Fd, options: &SocketOptions) -> io::Result<()> {
    let value = |v: u32| c_int::try_from(v).unwrap_or(c_int::MAX);
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_KEEPIDLE,
        value(options.keepalive_idle),
    )?;
    set_option(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_KEEPINTVL,
        value(options.keepalive_interval),
    )?;
    set_option(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_KEEPCNT,
        value(options.keepalive_probes),
    )
}

/// A bound and listening socket with `SO_REUSEADDR`. `backlog` is cut to `net.core.somaxconn` by
/// the kernel.
pub fn listen(addr: &SocketAddr, backlog: u32) -> io::Result<Fd> {
    let fd = tcp(addr)?;
    let raw = RawAddr::from(addr);
    let bound = set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).and_then(|()| {
        // SAFETY: `raw` holds an address of `raw.len()` bytes.
        check(unsafe { libc::bind(fd.0, raw.as_ptr(), raw.len()) })?;
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: no pointers are passed.
        check(unsafe { libc::listen(fd.0, backlog) })
    });
    if let Err(error) = bound {
        close(fd);
        return Err(error);
    }
    Ok(fd)
}

/// Another descriptor of the same socket, close-on-exec.
pub fn duplicate(fd: Fd) -> io::Result<Fd> {
    // SAFETY: no pointers are passed.
    check(unsafe { libc::fcntl(fd.0, libc::F_DUPFD_CLOEXEC, 0) }).map(Fd)
}

/// Sets `O_NONBLOCK`.
pub fn set_nonblocking(fd: Fd) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    let flags = check(unsafe { libc::fcntl(fd.0, libc::F_GETFL) })?;
    // SAFETY: no pointers are passed.
    check(unsafe { libc::fcntl(fd.0, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Takes one connection off the queue of a listening socket.
pub fn accept(listener: Fd) -> io::Result<(Fd, SocketAddr)> {
    let mut raw = RawAddr::empty();
    let place = ptr::from_mut(&mut raw.storage).cast();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: `place` has room for `raw.len` bytes.
    let fd = check(unsafe { libc::accept4(listener.0, place, &mut raw.len, flags) }).map(Fd)?;
    match raw.to_addr() {
        Ok(peer) => Ok((fd, peer)),
        Err(error) => {
            close(fd);
            Err(error)
        }
    }
}

/// Whether the next `accept(2)` would fail for the same reason: out of descriptors or memory, or
/// not a listening socket. All else concerns one connection that failed before it was accepted.
#[must_use]
pub fn ends_accept(errno: i32) -> bool {
    matches!(
        errno,
        libc::EMFILE
            | libc::ENFILE
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EBADF
            | libc::EINVAL
            | libc::ENOTSOCK
            | libc::EOPNOTSUPP
    )
}

/// Whether an attempt to connect failed because this machine lacks a descriptor, a local port or
/// memory: it says nothing about the other end.
#[must_use]
pub fn is_local_shortage(errno: i32) -> bool {
    matches!(
        errno,
        libc::EMFILE
            | libc::ENFILE
            | libc::EADDRNOTAVAIL
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EAGAIN
    )
}

/// Begins to connect; `EINPROGRESS` means that the end will show as writability.
pub fn connect(fd: Fd, addr: &SocketAddr) -> io::Result<()> {
    let raw = RawAddr::from(addr);
    // SAFETY: `raw` holds an address of `raw.len()` bytes.
    check(unsafe { libc::connect(fd.0, raw.as_ptr(), raw.len()) }).map(drop)
}

/// Takes the pending error (`SO_ERROR`) off a socket; 0 when there is none.
pub fn take_error(fd: Fd) -> io::Result<i32> {
    option(fd, libc::SOL_SOCKET, libc::SO_ERROR)
}

/// The address of the other end.
pub fn peer_addr(fd: Fd) -> io::Result<SocketAddr> {
    let mut raw = RawAddr::empty();
    let place = ptr::from_mut(&mut raw.storage).cast();
    // SAFETY: `place` has room for `raw.len` bytes.
    check(unsafe { libc::getpeername(fd.0, place, &mut raw.len) })?;
    raw.to_addr()
}

/// The address of this end.
pub fn local_addr(fd: Fd) -> io::Result<SocketAddr> {
    let mut raw = RawAddr::empty();
    let place = ptr::from_mut(&mut raw.storage).cast();
    // SAFETY: `place` has room for `raw.len` bytes.
    check(unsafe { libc::getsockname(fd.0, place, &mut raw.len) })?;
    raw.to_addr()
}

/// Receives into the room of `buf` and counts the bytes as filled. `Ok(0)` is end of stream.
///
/// By `syscall(2)`, as is [`send`]: the C library's own `recv` and `send` are cancellation points,
/// which in a process with threads costs some 40 instructions a call for a feature that Rust has
/// no use for.
pub(crate) fn recv(fd: Fd, buf: &mut Buf) -> io::Result<usize> {
    recv_with(fd, buf, 0)
}

/// The same, but leaves the bytes unread.
pub(crate) fn peek(fd: Fd, buf: &mut Buf) -> io::Result<usize> {
    recv_with(fd, buf, libc::MSG_PEEK)
}

fn recv_with(fd: Fd, buf: &mut Buf, flags: c_int) -> io::Result<usize> {
    let (place, room) = buf.room_ptr();
    let none = ptr::null_mut::<c_void>();
    // SAFETY: `room` bytes from `place` on belong to `buf`, which is borrowed mutably; no address
    // is asked for.
    let n = unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.0,
            place,
            room,
            libc::MSG_DONTWAIT | flags,
            none,
            none,
        )
    };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    buf.grow_filled(n);
    Ok(n)
}

/// Sends from `bytes`. No `SIGPIPE`. `more`: further bytes follow at once.
pub fn send(fd: Fd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = send_flags(more);
    let none = ptr::null::<c_void>();
    // SAFETY: the slice is valid for its length; no address is given.
    let n = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.0,
            bytes.as_ptr(),
            bytes.len(),
            flags,
            none,
            0,
        )
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// The flags every send has: no signal, no waiting, and `MSG_MORE` if `more`.
pub(crate) fn send_flags(more: bool) -> c_int {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    if more {
        flags | libc::MSG_MORE
    } else {
        flags
    }
}

/// Reads and throws away up to `max` bytes without copying them (TCP's `MSG_TRUNC`).
pub fn discard(fd: Fd, max: usize) -> io::Result<usize> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: for TCP, MSG_TRUNC makes the kernel count bytes without writing to the buffer.
    check_len(unsafe { libc::recv(fd.0, ptr::null_mut(), max, flags) })
}

/// Bytes that have arrived and were not read (`SIOCINQ`). A FIN does not count;
/// nor do bytes behind urgent ones (`MSG_OOB`), which HTTP has no use for.
pub fn unread(fd: Fd) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int, for which there is room.
    check(unsafe { libc::ioctl(fd.0, libc::FIONREAD, ptr::from_mut(&mut bytes)) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Bytes in the send queue: not acknowledged by the peer, or not even sent (`SIOCOUTQ`). Fails for
/// what is no connection.
pub fn unacknowledged(fd: Fd) -> io::Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int, for which there is room.
    let done = unsafe { libc::ioctl(fd.0, libc::TIOCOUTQ, ptr::from_mut(&mut bytes)) };
    check(done)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Free bytes of the send buffer; 0 where that cannot be told.
pub fn send_room(fd: Fd) -> usize {
    const WORDS: usize = libc::SK_MEMINFO_DROPS as usize + 1;
    let mut words = [0u32; WORDS];
    let mut len = size_of_val(&words) as socklen_t;
    let place = words.as_mut_ptr().cast();
    // SAFETY: there is room for the `len` bytes that the kernel is allowed to write.
    let done = unsafe {
        libc::getsockopt(
            fd.0,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            place,
            &raw mut len,
        )
    };
    if check(done).is_err() {
        return 0;
    }
    let most = words[libc::SK_MEMINFO_SNDBUF as usize];
    let queued = words[libc::SK_MEMINFO_WMEM_QUEUED as usize];
    most.saturating_sub(queued) as usize
}

/// Whether there is neither a byte, nor an end of stream, nor an error to be read.
#[must_use]
pub fn is_quiet(fd: Fd) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: there is room for the one byte asked for.
    let n = check_len(unsafe { libc::recv(fd.0, ptr::from_mut(&mut byte).cast(), 1, flags) });
    n.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// `shutdown(2)`.
pub fn shutdown(fd: Fd, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Write => libc::SHUT_WR,
        Shutdown::Both => libc::SHUT_RDWR,
    };
    // SAFETY: no pointers are passed.
    check(unsafe { libc::shutdown(fd.0, how) }).map(drop)
}

/// Makes the coming `close(2)` send RST (`SO_LINGER` with zero seconds).
pub fn reset_on_close(fd: Fd) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let len = size_of::<libc::linger>() as socklen_t;
    let place = ptr::from_ref(&linger).cast();
    // SAFETY: `linger` lives through the call and `len` is its size.
    check(unsafe { libc::setsockopt(fd.0, libc::SOL_SOCKET, libc::SO_LINGER, place, len) })
        .map(drop)
}
