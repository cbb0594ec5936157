internal import Jobs

/// A response's header section, line by line as libcurl hands it over, within its bounds.
///
/// Interim responses (1xx) count against the same bounds: an origin may not send them for ever.
struct HeaderSection {
  /// What a line made of the section.
  enum Step: Equatable {
    case more, complete
    case tooLarge(HeaderLimit)
    /// Nobody can tell where its lines end, or what they belong to: libcurl may have read another one.
    case malformed
  }

  /// The newest status line's; 0 before the first.
  private(set) var status = 0
  /// Complete once the section is.
  private(set) var fields: [HeaderField] = []
  /// The newest field line. Further lines may continue its value.
  private var newest: (name: String, value: [UInt8])?
  private let maxBytes: Int
  private let maxLines: Int
  private var bytes = 0
  private var lines = 0
  /// A line that looks like one elsewhere is a field's: libcurl obeys what came before it, too.
  private var expectsStatusLine = true

  init(maxBytes: Int, maxLines: Int = 264) {
    self.maxBytes = maxBytes
    self.maxLines = maxLines
  }

  /// Takes one line with its line break.
  mutating func take(_ line: UnsafeBufferPointer<UInt8>) -> Step {
    bytes += line.count
    lines += 1
    guard bytes <= maxBytes else { return .tooLarge(.bytes(maxBytes)) }
    guard lines <= maxLines else { return .tooLarge(.lines(maxLines)) }
    var content = line[...]
    if content.last == 0x0A { content = content.dropLast() }
    if content.last == 0x0D { content = content.dropLast() }
    // To libcurl one within a line is a character like others.
    if content.contains(0x0D) || content.contains(0) { return .malformed }
    if expectsStatusLine {
      guard begin(content) else { return .malformed }
    } else if content.isEmpty {
      endField()
      expectsStatusLine = 100...199 ~= status
      return expectsStatusLine ? .more : .complete
    } else {
      return add(content) ? .more : .malformed
    }
    return .more
  }

  /// Every value of a field.
  func values(of name: String) -> [String] {
    fields.filter { $0.name.lowercased() == name }.map(\.value)
  }

  /// - Returns: whether it is a status line. Any number of blanks may stand before the code, as for libcurl.
  private mutating func begin(_ line: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
    guard line.starts(with: "HTTP/".utf8) else { return false }
    let digits = line.drop { $0 != 0x20 }.drop(while: Self.isBlank).prefix(3)
    guard digits.count == 3, digits.allSatisfy({ 0x30...0x39 ~= $0 }) else { return false }
    status = digits.reduce(0) { $0 * 10 + Int($1 - 0x30) }
    fields = []
    expectsStatusLine = false
    return status >= 100
  }

  /// - Returns: false for a line that is no field and continues none, and for one that libcurl reads as another field
  ///   than a cache must, where that field says how long the body is.
  private mutating func add(_ line: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
    if Self.isBlank(line[line.startIndex]) { return fold(line) }
    endField()
    guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return false }
    // RFC 9112 section 5.1: blanks before the colon are not part of the name.
    let name = String(decoding: Self.trimmed(line[..<colon]), as: UTF8.self)
    newest = (name, Array(Self.trimmed(line[(colon + 1)...])))
    return line[..<colon].last.map(Self.isBlank) != true || !Self.isFraming(name)
  }

  /// RFC 9112 section 5.2: a line that begins with a blank continues the value before it, as if after one space.
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

  /// libcurl reads these itself, and only as they are usually written.
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

  /// UTF-8 where it is, else a character a byte, so that nothing is lost.
  private static func text(_ bytes: [UInt8]) -> String {
    String(validating: bytes, as: UTF8.self)
      ?? String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
  }
}

/// A final response's header section.
struct ResponseHead: Sendable {
  var status: Int
  var fields: [HeaderField]
  /// Nil without a usable `Content-Length`, or where the transfer coding overrules it.
  var contentLength: Int?
  var timings: TransferTimings
}
