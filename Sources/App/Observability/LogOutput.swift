internal import Glibc

/// The writing thread's side of the log: a descriptor, which may be slow, full or closed.
final class LogOutput: @unchecked Sendable {  // used by one thread alone
  private let descriptor: Int32
  private let notice: @Sendable (Int) -> String
  private let display: Display
  /// Lines that are gone and that no notice has told of.
  private var untold = 0

  /// Shows lines in the descriptor's stead, and says whether it did.
  typealias Display = @Sendable (ArraySlice<UInt8>) -> Bool

  init(
    _ descriptor: Int32, display: @escaping Display, notice: @escaping @Sendable (Int) -> String
  ) {
    (self.descriptor, self.display, self.notice) = (descriptor, display, notice)
  }

  /// Writes lines, waiting for as long as whoever reads takes.
  ///
  /// - Parameter dropped: lines that are missing behind them.
  /// - Returns: how many of the lines could not be written.
  func write(_ bytes: [UInt8], lines: Int, dropped: Int) -> Int {
    var written = 0
    if tell() {
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = Self.wholeLines(of: rest)
        guard put(piece) else { break }
        written += piece.count { $0 == UInt8(ascii: "\n") }
        rest = rest.dropFirst(piece.count)
      }
    }
    untold += lines - written + dropped
    if written == lines { _ = tell() }
    return lines - written
  }

  /// - Returns: false where that can't be written either.
  private func tell() -> Bool {
    guard untold > 0 else { return true }
    guard put(Array(notice(untold).utf8)[...]) else { return false }
    untold = 0
    return true
  }

  /// As many as a pipe takes in one piece, so that those of programs that share it don't mix (pipe(7)); at least one.
  private static func wholeLines(of bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    let limit = Int(PIPE_BUF)
    guard bytes.count > limit else { return bytes }
    let lineFeed = UInt8(ascii: "\n")
    let last = bytes.prefix(limit).lastIndex(of: lineFeed) ?? bytes.firstIndex(of: lineFeed)
    return last.map { bytes[...$0] } ?? bytes
  }

  /// - Returns: false where it can't be written: nobody reads any more, or there is no room on a disk.
  private func put(_ bytes: ArraySlice<UInt8>) -> Bool {
    if display(bytes) { return true }
    return bytes.withUnsafeBytes { bytes in
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = UnsafeRawBufferPointer(rebasing: rest)
        let count = Glibc.write(descriptor, piece.baseAddress, piece.count)
        if count > 0 {
          rest = rest.dropFirst(count)
        } else if count < 0 && errno == EAGAIN {
          // Whoever gave us the descriptor has made it non-blocking.
          var wait = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
          poll(&wait, 1, -1)
        } else if count == 0 || errno != EINTR {
          return false
        }
      }
      return true
    }
  }
}
