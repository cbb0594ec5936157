internal import Jobs

/// A response's header section, line by line as libcurl hands it over, within its bounds.
///
/// Interim responses (1xx) count against the same bounds: an origin may not send them for ever.
struct HeaderSection {
  /// What a line made of the section.
  enum Step: Equatable {
    case more, complete, tooLarge
    /// Nobody can tell where its lines end, or what they belong to: libcurl may have read another one.
    case malformed
  }

  /// The newest status line's; 0 before the first.
  private(set) var status = 0
  private(set) var fields: [HeaderField] = []
  private let maxBytes: Int
  private let maxFields: Int
  private var bytes = 0
  private var lines = 0
  /// A line that looks like one elsewhere is a field's: libcurl obeys what came before it, too.
  private var expectsStatusLine = true

  init(maxBytes: Int, maxFields: Int = 256) {
    self.maxBytes = maxBytes
    self.maxFields = maxFields
  }

  /// Takes one line with its line break.
  mutating func take(_ line: UnsafeBufferPointer<UInt8>) -> Step {
    bytes += line.count
    lines += 1
    guard bytes <= maxBytes, lines <= maxFields + 8 else { return .tooLarge }
    var content = line[...]
    if content.last == 0x0A { content = content.dropLast() }
    if content.last == 0x0D { content = content.dropLast() }
    // To libcurl one within a line is a character like others.
    if content.contains(0x0D) { return .malformed }
    if expectsStatusLine {
      guard content.starts(with: "HTTP/".utf8) else { return .malformed }
      begin(content)
    } else if content.isEmpty {
      expectsStatusLine = 100...199 ~= status
      return expectsStatusLine ? .more : .complete
    } else {
      add(content)
    }
    return .more
  }

  /// Every value of a field.
  func values(of name: String) -> [String] {
    fields.filter { $0.name.lowercased() == name }.map(\.value)
  }

  private mutating func begin(_ line: Slice<UnsafeBufferPointer<UInt8>>) {
    let digits = line.drop { $0 != 0x20 }.dropFirst().prefix { 0x30...0x39 ~= $0 }
    status = digits.prefix(3).reduce(0) { $0 * 10 + Int($1 - 0x30) }
    fields = []
    expectsStatusLine = false
  }

  private mutating func add(_ line: Slice<UnsafeBufferPointer<UInt8>>) {
    // A folded line (RFC 9112 section 5.2) and one without a colon carry nothing that we want.
    guard let colon = line.firstIndex(of: UInt8(ascii: ":")), colon > line.startIndex,
      line[line.startIndex] != 0x20, line[line.startIndex] != 0x09, !line.contains(0)
    else { return }
    let name = String(decoding: line[..<colon], as: UTF8.self)
    var value = line[(colon + 1)...].drop(while: Self.isBlank)
    while let last = value.last, Self.isBlank(last) { value = value.dropLast() }
    fields.append(HeaderField(name: name, value: Self.text(value)))
  }

  private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

  /// UTF-8 where it is, else a character a byte, so that nothing is lost.
  private static func text(_ bytes: Slice<UnsafeBufferPointer<UInt8>>) -> String {
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
