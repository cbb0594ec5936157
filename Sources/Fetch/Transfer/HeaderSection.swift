internal import Glibc
internal import Jobs

/// A response's header section. libcurl passes it line by line; its size is limited.
///
/// Interim responses (1xx) count toward the same limits, so an origin cannot send them without end.
struct HeaderSection {
  /// The state of the section after a line.
  enum Step: Equatable {
    case more, complete
    case tooLarge(HeaderLimit)
    /// Line ends or fields are ambiguous, so libcurl may have understood them differently.
    case malformed
  }

  /// The status of the newest status line; 0 before the first.
  private(set) var status = 0
  /// The fields of the newest response; complete once the section is.
  private(set) var fields: [HeaderField] = []
  /// The newest field. Further lines may continue its value.
  private var newest: (name: String, value: [UInt8])?
  private let maxBytes: Int
  private let maxLines: Int
  private var bytes = 0
  private var lines = 0
  /// Whether the next line must be a status line. Any other line is treated as a field, even if it looks like a
  /// status line: libcurl would then start a new response but keep the effect of the fields before it.
  private var expectsStatusLine = true

  init(maxBytes: Int, maxLines: Int = 264) {
    self.maxBytes = maxBytes
    self.maxLines = maxLines
  }

  /// Parses one line, including its line break.
  mutating func parseLine(_ line: UnsafeBufferPointer<UInt8>) -> Step {
    bytes += line.count
    lines += 1
    guard bytes <= maxBytes else { return .tooLarge(.bytes(maxBytes)) }
    guard lines <= maxLines else { return .tooLarge(.lines(maxLines)) }
    var content = line[...]
    if content.last == 0x0A { content = content.dropLast() }
    if content.last == 0x0D { content = content.dropLast() }
    // libcurl treats a carriage return inside a line as an ordinary character.
    if content.contains(0x0D) || content.contains(0) { return .malformed }
    if expectsStatusLine {
      guard parseStatusLine(content) else { return .malformed }
    } else if content.isEmpty {
      endField()
      expectsStatusLine = 100...199 ~= status
      return expectsStatusLine ? .more : .complete
    } else {
      return parseFieldLine(content) ? .more : .malformed
    }
    return .more
  }

  /// Returns all values of the field with this lower-case name.
  func values(of name: String) -> [String] {
    fields.filter { $0.name.lowercased() == name }.map(\.value)
  }

  /// Parses a status line. Like libcurl, it accepts any number of spaces before the code.
  /// - Returns: Whether the line is a status line.
  private mutating func parseStatusLine(_ line: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
    guard line.starts(with: "HTTP/".utf8) else { return false }
    let digits = line.drop { $0 != 0x20 }.drop(while: Self.isBlank).prefix(3)
    guard digits.count == 3, digits.allSatisfy({ 0x30...0x39 ~= $0 }) else { return false }
    status = digits.reduce(0) { $0 * 10 + Int($1 - 0x30) }
    fields = []
    expectsStatusLine = false
    return status >= 100
  }

  /// Parses a field line or the continuation of one.
  /// - Returns: False if the line is neither. Also false for a framing field with blanks before its colon,
  ///   which libcurl and caches read differently.
  private mutating func parseFieldLine(_ line: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
    if Self.isBlank(line[line.startIndex]) { return fold(line) }
    endField()
    guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return false }
    // RFC 9112 section 5.1: blanks before the colon are not part of the name.
    let name = String(decoding: Self.trimmed(line[..<colon]), as: UTF8.self)
    newest = (name, Array(Self.trimmed(line[(colon + 1)...])))
    return line[..<colon].last.map(Self.isBlank) != true || !Self.isFraming(name)
  }

  /// Appends a continuation line (RFC 9112 section 5.2): a line that begins with a blank continues the value
  /// before it, after one space.
  private mutating func fold(_ line: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
    guard let name = newest?.name, !Self.isFraming(name) else { return false }
    let more = Self.trimmed(line)
    guard !more.isEmpty else { return true }
    if newest?.value.isEmpty == false { newest?.value.append(0x20) }
    newest?.value += more
    return true
  }

  private mutating func endField() {
    guard let (name, value) = newest.take(), !name.isEmpty else { return }
    let isLocation = name.lowercased() == "location"
    fields.append(
      HeaderField(name: name, value: isLocation ? Redirect.text(of: value) : Self.text(value)))
  }

  /// Whether a field determines the body's length. libcurl parses these fields itself, and only in their
  /// usual form.
  private static func isFraming(_ name: String) -> Bool {
    ["content-length", "transfer-encoding"].contains(name.lowercased())
  }

  private static func trimmed(
    _ line: Slice<UnsafeBufferPointer<UInt8>>
  ) -> Slice<UnsafeBufferPointer<UInt8>> {
    var rest = line.drop(while: isBlank)
    while let last = rest.last, isBlank(last) { rest = rest.dropLast() }
    return rest
  }

  private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

  /// Decodes UTF-8. Other bytes become one character each (ISO 8859-1), so that no byte is lost.
  private static func text(_ bytes: [UInt8]) -> String {
    String(validating: bytes, as: UTF8.self)
      ?? String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
  }
}

/// The header section of a final response.
struct ResponseHead: Sendable {
  var status: Int
  var fields: [HeaderField]
  /// Nil without a usable `Content-Length`, or if a transfer coding overrides it.
  var contentLength: Int?
  var timings: TransferTimings
}

/// A response's `Content-Length` fields (RFC 9110 section 8.6). They are checked here, because libcurl is
/// more lenient.
enum ContentLength: Equatable {
  /// No `Content-Length`, or a transfer coding overrides it (RFC 9112 section 6.3).
  case unsaid
  case said(Int)
  /// More than `Int` can hold.
  case tooLarge
  /// Different lengths or not a number, so the end of the body is unknown.
  case unclear(String)

  /// - Parameter values: The values of all `Content-Length` fields. Each may repeat one length, separated by
  ///   commas.
  init(_ values: [String]) {
    let lengths = Set(
      values.flatMap { $0.split(separator: ",", omittingEmptySubsequences: false) }.map {
        String($0.trimmingPrefix { $0 == " " || $0 == "\t" })
      })
    guard let text = lengths.first else {
      self = .unsaid
      return
    }
    if lengths.count > 1 {
      self = .unclear("different Content-Length values")
    } else if text.isEmpty || !text.utf8.allSatisfy({ 0x30...0x39 ~= $0 }) {
      self = .unclear("Content-Length is not a number")
    } else {
      self = Int(text).map { .said($0) } ?? .tooLarge
    }
  }

  var bytes: Int? { if case .said(let bytes) = self { bytes } else { nil } }
}

extension HeaderSection {
  var length: ContentLength { isCoded ? .unsaid : ContentLength(values(of: "content-length")) }

  /// Whether the response has both a `Content-Length` and a transfer coding. The origin and a proxy may then
  /// disagree about where the body ends.
  var isDoubtful: Bool { isCoded && !values(of: "content-length").isEmpty }

  private var isCoded: Bool { !values(of: "transfer-encoding").isEmpty }
}

/// The `Retry-After` field (RFC 9110 section 10.2.3).
enum RetryAfter {
  /// Returns the seconds from now, never negative. Nil if the value is neither a number of seconds nor an
  /// HTTP date.
  static func seconds(_ value: String) -> Double? {
    if !value.isEmpty, value.utf8.allSatisfy({ 0x30...0x39 ~= $0 }) {
      return value.utf8.count <= 10 ? Double(value) : Double(Int32.max)
    }
    let now = Timestamp(milliseconds: Int64(time(nil)) * 1000)
    return Timestamp(httpDate: value, now: now).map { max(0, ($0 - now).inSeconds) }
  }
}
