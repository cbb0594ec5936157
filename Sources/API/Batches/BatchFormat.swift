/// How an upload's bytes are lines.
protocol BatchFormat: Sendable {
  /// Reads a piece of the content.
  /// - Throws: what ends the upload; what was read before stays.
  mutating func read(_ piece: [UInt8], into reader: inout LineReader) throws(Problem)

  /// The content has ended.
  mutating func end(into reader: inout LineReader) throws(Problem)
}

/// `text/uri-list` (RFC 2483 section 5), and plain text of the same form.
struct URIListFormat: BatchFormat {
  private var splitter = LineSplitter()

  mutating func read(_ piece: [UInt8], into reader: inout LineReader) {
    splitter.split(piece) { Self.read($0, &reader) }
  }

  mutating func end(into reader: inout LineReader) { splitter.end { Self.read($0, &reader) } }

  private static func read(_ line: ArraySlice<UInt8>?, _ reader: inout LineReader) {
    reader.begin(item: line ?? [0xFF])
    guard let line else { return reader.rejectLong() }
    let text = line.trimmingSpace
    guard let first = text.first, first != UInt8(ascii: "#") else { return reader.skip() }
    guard let url = String(validating: text, as: UTF8.self) else {
      return reader.reject(url: nil, .invalidURL, "It is not UTF-8.")
    }
    reader.add(url: url)
  }
}

/// `application/x-ndjson`: a job or a string that is a URL, a line.
struct NDJSONFormat: BatchFormat {
  private var splitter = LineSplitter()

  mutating func read(_ piece: [UInt8], into reader: inout LineReader) {
    splitter.split(piece) { Self.read($0, &reader) }
  }

  mutating func end(into reader: inout LineReader) { splitter.end { Self.read($0, &reader) } }

  private static func read(_ line: ArraySlice<UInt8>?, _ reader: inout LineReader) {
    reader.begin(item: line ?? [0xFF])
    guard let line else { return reader.rejectLong() }
    let text = line.trimmingSpace
    if text.isEmpty { reader.skip() } else { reader.add(json: text) }
  }
}

extension ArraySlice<UInt8> {
  /// Without spaces and tabs at either end.
  var trimmingSpace: ArraySlice<UInt8> {
    func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
    var rest = drop(while: isSpace)
    while let last = rest.last, isSpace(last) { rest.removeLast() }
    return rest
  }
}
