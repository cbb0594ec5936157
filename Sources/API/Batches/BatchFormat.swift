/// Splits the content of an upload into lines.
protocol BatchFormat: Sendable {
  /// Reads a piece of the content.
  /// - Throws: a mistake that ends the upload. Lines that were read before it are kept.
  mutating func read(_ piece: [UInt8], into reader: inout BatchLineReader) throws(Problem)

  /// Reads the rest at the end of the content.
  mutating func finish(into reader: inout BatchLineReader) throws(Problem)
}

/// `text/uri-list` (RFC 2483 section 5) and `text/plain`: one URL per line.
struct URIListFormat: BatchFormat {
  private var splitter = LineSplitter()

  mutating func read(_ piece: [UInt8], into reader: inout BatchLineReader) {
    splitter.split(piece) { Self.read($0, &reader) }
  }

  mutating func finish(into reader: inout BatchLineReader) {
    splitter.finish { Self.read($0, &reader) }
  }

  private static func read(_ line: ArraySlice<UInt8>?, _ reader: inout BatchLineReader) {
    reader.begin(item: line ?? [0xFF])
    guard let line else { return reader.rejectLong() }
    let text = line.trimmingSpace
    guard let first = text.first, first != UInt8(ascii: "#") else { return reader.skip() }
    guard let url = String(validating: text, as: UTF8.self) else {
      return reader.reject(url: nil, .invalidURL, "The line is not UTF-8.")
    }
    reader.add(url: url)
  }
}

/// `application/x-ndjson`: each line is a job, or a string with a URL.
struct NDJSONFormat: BatchFormat {
  private var splitter = LineSplitter()

  mutating func read(_ piece: [UInt8], into reader: inout BatchLineReader) {
    splitter.split(piece) { Self.read($0, &reader) }
  }

  mutating func finish(into reader: inout BatchLineReader) {
    splitter.finish { Self.read($0, &reader) }
  }

  private static func read(_ line: ArraySlice<UInt8>?, _ reader: inout BatchLineReader) {
    reader.begin(item: line ?? [0xFF])
    guard let line else { return reader.rejectLong() }
    let text = line.trimmingSpace
    if text.isEmpty { reader.skip() } else { reader.add(json: text) }
  }
}

extension ArraySlice<UInt8> {
  /// Returns the slice without spaces and tabs at both ends.
  var trimmingSpace: ArraySlice<UInt8> {
    func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
    var rest = drop(while: isSpace)
    while let last = rest.last, isSpace(last) { rest.removeLast() }
    return rest
  }
}
