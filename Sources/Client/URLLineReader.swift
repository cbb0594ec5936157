internal import Glibc

/// Reads a list of URLs line by line. Its memory is bounded, however long the list is.
final class URLLineReader {
  /// A line that is not blank.
  enum Line: Equatable {
    case text(String)
    /// A line that cannot be a URL: its beginning, and the reason.
    case unusable(String, reason: String)
  }

  /// The longest line in bytes, without its line end.
  static let maxLine = 8192

  private let descriptor: Int32
  private var buffer = [UInt8](repeating: 0, count: 65_536)
  private var unread = 0..<0
  private var isFirstLine = true

  init(_ descriptor: Int32) { self.descriptor = descriptor }

  /// Waits for the next line that is not blank. Nil at the end.
  func next() throws(SystemError) -> Line? {
    while let (line, isWhole) = try nextBytes() {
      // Some editors write a byte order mark (U+FEFF in UTF-8) at the beginning.
      let hasMark = isFirstLine && line.starts(with: [0xEF, 0xBB, 0xBF])
      let bytes = line.dropFirst(hasMark ? 3 : 0)
      isFirstLine = false
      let blanks: Set<UInt8> = [0x20, 0x09, 0x0D]
      guard var end = bytes.lastIndex(where: { !blanks.contains($0) }) else { continue }
      end += 1
      let start = bytes.firstIndex { !blanks.contains($0) } ?? end
      return Self.line(bytes[start..<end], isWhole: isWhole)
    }
    return nil
  }

  /// Checks a text like a line of a list.
  static func line(_ text: String) -> Line {
    let bytes = Array(text.utf8.prefix(maxLine + 1))
    return line(bytes.prefix(maxLine), isWhole: bytes.count <= maxLine)
  }

  private static func line(_ bytes: ArraySlice<UInt8>, isWhole: Bool) -> Line {
    let beginning = String(decoding: bytes.prefix(120), as: UTF8.self)
    guard isWhole else {
      return .unusable(beginning, reason: "The line is longer than \(maxLine) bytes.")
    }
    guard let text = String(validating: bytes, as: UTF8.self) else {
      return .unusable(beginning, reason: "The line is not UTF-8.")
    }
    return .text(text)
  }

  /// Returns the next line's bytes, cut at `maxLine`. Nil at the end.
  private func nextBytes() throws(SystemError) -> (bytes: [UInt8], isWhole: Bool)? {
    var line: [UInt8] = []
    var isWhole = true
    while true {
      if unread.isEmpty, try !fill() {
        return line.isEmpty ? nil : (line, isWhole)
      }
      let end = buffer[unread].firstIndex(of: 0x0A)
      let piece = buffer[unread.lowerBound..<(end ?? unread.upperBound)]
      isWhole = isWhole && line.count + piece.count <= Self.maxLine
      line += piece.prefix(Self.maxLine - line.count)
      guard let end else {
        unread = 0..<0
        continue
      }
      unread = (end + 1)..<unread.upperBound
      return (line, isWhole)
    }
  }

  /// - Returns: Whether there is more to read.
  private func fill() throws(SystemError) -> Bool {
    while true {
      let count = read(descriptor, &buffer, buffer.count)
      if count >= 0 {
        unread = 0..<count
        return count > 0
      }
      if errno == EAGAIN {
        var wait = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        poll(&wait, 1, -1)
      } else if errno != EINTR {
        throw SystemError(code: errno)
      }
    }
  }
}
