internal import Glibc

/// Writes log lines to a descriptor, which may be slow, full or closed. Used only by the thread of `LogWriter`.
final class LogOutput: @unchecked Sendable {  // used by one thread alone
  private let descriptor: Int32
  private let notice: @Sendable (Int) -> String
  private let display: Display
  /// Lines that were lost and not yet reported by a notice.
  private var unreported = 0

  /// Shows lines instead of writing them to the descriptor. Returns false if it did not show them.
  typealias Display = @Sendable (ArraySlice<UInt8>) -> Bool

  init(
    _ descriptor: Int32, display: @escaping Display, notice: @escaping @Sendable (Int) -> String
  ) {
    (self.descriptor, self.display, self.notice) = (descriptor, display, notice)
  }

  /// Writes lines. Blocks until the reader has taken them.
  ///
  /// - Parameter dropped: the number of lines that were dropped after these.
  /// - Returns: The number of lines that could not be written.
  func write(_ bytes: [UInt8], lines: Int, dropped: Int) -> Int {
    var written = 0
    if writeNotice() {
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = Self.wholeLines(of: rest)
        guard writeAll(piece) else { break }
        written += piece.count { $0 == UInt8(ascii: "\n") }
        rest = rest.dropFirst(piece.count)
      }
    }
    unreported += lines - written + dropped
    if written == lines { _ = writeNotice() }
    return lines - written
  }

  /// Writes a notice about the lost lines, if there are any.
  ///
  /// - Returns: False if the notice could not be written.
  private func writeNotice() -> Bool {
    guard unreported > 0 else { return true }
    guard writeAll(Array(notice(unreported).utf8)[...]) else { return false }
    unreported = 0
    return true
  }

  /// The first complete lines of `bytes`, up to `PIPE_BUF` bytes but at least one line.
  ///
  /// A pipe takes that many bytes atomically, so that lines of programs that share it do not mix (pipe(7)).
  private static func wholeLines(of bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    let limit = Int(PIPE_BUF)
    guard bytes.count > limit else { return bytes }
    let lineFeed = UInt8(ascii: "\n")
    let last = bytes.prefix(limit).lastIndex(of: lineFeed) ?? bytes.firstIndex(of: lineFeed)
    return last.map { bytes[...$0] } ?? bytes
  }

  /// Writes bytes to the display or the descriptor.
  ///
  /// - Returns: False on an error, such as a closed pipe or a full disk.
  private func writeAll(_ bytes: ArraySlice<UInt8>) -> Bool {
    if display(bytes) { return true }
    return bytes.withUnsafeBytes { bytes in
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = UnsafeRawBufferPointer(rebasing: rest)
        let count = Glibc.write(descriptor, piece.baseAddress, piece.count)
        if count > 0 {
          rest = rest.dropFirst(count)
        } else if count < 0 && errno == EAGAIN {
          // The descriptor was inherited in non-blocking mode.
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
