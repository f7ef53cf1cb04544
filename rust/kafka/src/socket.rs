//! A non-blocking TCP connection, with or without TLS.

use std::collections::VecDeque;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::frame::Arriving;
use crate::properties::{Family, Properties};

/// The TLS library reads 4 KiB at a time; this buffer saves a system call for each.
const TLS_READ_AHEAD: usize = 256 * 1024;

/// A byte stream to a broker.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Starts to connect; the socket becomes writable when that has succeeded or failed.
    pub(crate) fn open(
        address: SocketAddr,
        host: &str,
        properties: &Properties,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(properties.keepalive)?;
        if let Some(size) = properties.send_buffer {
            socket.set_send_buffer_size(size)?;
        }
        if let Some(size) = properties.receive_buffer {
            socket.set_recv_buffer_size(size)?;
        }
        match socket.connect(&SockAddr::from(address)) {
            Ok(()) => {}
            Err(error) if in_progress(&error) => {}
            Err(error) => return Err(error),
        }
        let tcp = TcpStream::from(socket);
        let Some(config) = tls else {
            return Ok(Self::Plain(tcp));
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(TlsStream {
            session,
            tcp: BufReader::with_capacity(TLS_READ_AHEAD, tcp),
        })))
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.tcp.get_ref(),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.tcp().as_fd()
    }

    /// Returns whether TLS has data to send.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.session.wants_write(),
        }
    }
}

impl Arriving for Stream {
    fn arrive(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        match self {
            // into uninitialized memory, as much as one call returns
            Self::Plain(tcp) if into.capacity() - into.len() <= most => {
                Ok(rustix::io::read(&*tcp, spare_capacity(into))?)
            }
            Self::Plain(tcp) => some(tcp, into, most),
            Self::Tls(tls) => some(tls, into, most),
        }
    }
}

/// Reads from any source.
fn some(source: &mut impl Read, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let before = into.len();
    let limit = u64::try_from(most).unwrap_or(u64::MAX);
    match source.take(limit).read_to_end(into) {
        // the read data is kept
        Err(error) if error.kind() == ErrorKind::WouldBlock && into.len() > before => {
            Ok(into.len() - before)
        }
        result => result,
    }
}

fn in_progress(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}

/// TLS over a TCP connection.
pub(crate) struct TlsStream {
    session: ClientConnection,
    tcp: BufReader<TcpStream>,
}

impl Read for TlsStream {
    /// Reads from the connection until plain text is available, so that nothing stays where poll(2) cannot see it.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            self.session.read_tls(&mut self.tcp)?;
            if let Err(error) = self.session.process_new_packets() {
                // the alert with the reason; it may not arrive
                let _ = self.session.write_tls(self.tcp.get_mut());
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.flush()?;
        match self.session.writer().write(from)? {
            // its buffer is full until the handshake is done
            0 if !from.is_empty() => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(self.tcp.get_mut())?;
        }
        Ok(())
    }
}

/// Returns the addresses of a host in the resolver's order. Blocks for as long as the system's resolver does.
pub(crate) fn resolve(host: &str, port: u16, family: Family) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()?
        .filter(|address| match family {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        })
        .collect();
    if found.is_empty() {
        return Err(io::Error::new(
            ErrorKind::NotFound,
            "the name has no address of this family",
        ));
    }
    Ok(found)
}

/// Rotates addresses by `turn`: the first one may never answer, such as an IPv6 address whose packets are dropped, and
/// use up the time of an attempt.
pub(crate) fn in_turn(addresses: Vec<SocketAddr>, turn: usize) -> VecDeque<SocketAddr> {
    let mut addresses = VecDeque::from(addresses);
    let first = turn.checked_rem(addresses.len()).unwrap_or(0);
    addresses.rotate_left(first);
    addresses
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::{Stream, in_turn};
    use crate::frame::Arriving as _;

    #[test]
    fn a_read_takes_at_most_the_requested_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        there.write_all(&[7; 1000]).unwrap();
        drop(there);
        let mut stream = Stream::Plain(here);
        let mut read = Vec::new();
        for (room, most) in [(100, 100), (500, 100), (1, 1), (2000, 2000), (9, 9)] {
            let mut into = Vec::with_capacity(3 + room);
            into.extend_from_slice(b"abc");
            let count = stream.arrive(&mut into, most).unwrap();
            assert!(count <= most);
            assert_eq!(&into[..3], b"abc");
            assert_eq!(into.len(), 3 + count);
            read.extend_from_slice(&into[3..]);
        }
        assert_eq!(read, [7; 1000]);
        assert_eq!(stream.arrive(&mut Vec::with_capacity(9), 9).unwrap(), 0);
    }

    #[test]
    fn nothing_that_arrived_is_told_apart_from_an_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        here.set_nonblocking(true).unwrap();
        for room in [9, 20] {
            let waits =
                Stream::Plain(here.try_clone().unwrap()).arrive(&mut Vec::with_capacity(room), 9);
            assert_eq!(waits.unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn each_attempt_begins_with_another_address() {
        let addresses: Vec<SocketAddr> = ["[::1]:1", "127.0.0.1:1", "127.0.0.2:1"]
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        for turn in 0..7 {
            let order = in_turn(addresses.clone(), turn);
            assert_eq!(order.front(), addresses.get(turn % 3));
            assert_eq!(order.len(), 3);
        }
        assert!(in_turn(Vec::new(), 1).is_empty());
    }
}
