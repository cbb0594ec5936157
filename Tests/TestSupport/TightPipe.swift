internal import Glibc

/// A pipe with a capacity of one page.
package final class TightPipe: Sendable {
  package let reader: Int32
  package let writer: Int32

  /// An empty pipe.
  package init() {
    var ends: [Int32] = [0, 0]
    precondition(pipe(&ends) == 0, "no descriptors are left")
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    (reader, writer) = (ends[0], ends[1])
    let setPipeSize: Int32 = 1031  // F_SETPIPE_SZ, which Glibc's module hasn't
    precondition(fcntl(writer, setPipeSize, 4096) >= 0, "a page is always allowed")
  }

  // Its ends are never closed, because a writer's thread may still use them.

  /// Makes the pipe non-blocking, as a parent process may have done.
  package func setNonBlocking() { _ = fcntl(writer, F_SETFL, O_WRONLY | O_NONBLOCK) }

  /// Fills the pipe.
  package func fill() throws {
    _ = fcntl(writer, F_SETFL, O_WRONLY | O_NONBLOCK)
    let page = [UInt8](repeating: UInt8(ascii: "\n"), count: 4096)
    while write(writer, page, page.count) > 0 {}
    _ = fcntl(writer, F_SETFL, O_WRONLY)
  }

  /// Waits for this number of lines. The bytes of ``fill()`` do not count.
  package func lines(_ count: Int) -> [String] {
    var lines: [String] = []
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while lines.count < count, read(reader, &byte, 1) == 1 {
      if byte != UInt8(ascii: "\n") {
        line.append(byte)
      } else if !line.isEmpty {
        lines.append(String(decoding: line, as: UTF8.self))
        line = []
      }
    }
    return lines
  }
}
