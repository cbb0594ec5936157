internal import Jobs

/// `text/csv` (RFC 4180): the header line names members of a job, and each record is a job. A quoted field may span
/// several lines; the record's number is that of its first line.
struct CSVFormat: BatchFormat {
  /// The parser's state before the next byte.
  private enum Place { case fieldStart, plain, quoted, quoteInQuoted }

  private var place = Place.fieldStart
  private var field: [UInt8] = []
  private var fields: [String] = []
  /// The size of the current record in bytes, and its line breaks within quotes.
  private var bytes = 0
  private var lineBreaks = 0
  private var isBroken = false
  private var header: [JobOption]?
  /// The byte that separates fields; nil: none has occurred yet.
  private var separator: UInt8?

  /// The first of these in the header line is the separator. Spreadsheets write semicolons where the comma is the
  /// decimal separator. No column name contains one of these bytes.
  private static let separators = [UInt8](",;\t".utf8)

  mutating func read(_ piece: [UInt8], into reader: inout BatchLineReader) throws(Problem) {
    for byte in piece { try read(byte, into: &reader) }
  }

  mutating func finish(into reader: inout BatchLineReader) throws(Problem) {
    if bytes > 0 { try endRecord(into: &reader) }
    guard header != nil else { throw Self.noHeader("it is missing.") }
  }

  private mutating func read(_ byte: UInt8, into reader: inout BatchLineReader) throws(Problem) {
    bytes += 1
    switch (place, byte) {
    case (.quoted, UInt8(ascii: "\"")): place = .quoteInQuoted
    case (.quoted, _):
      if byte == 0x0A { lineBreaks += 1 }
      append(byte)
    case (.quoteInQuoted, UInt8(ascii: "\"")):
      append(byte)
      place = .quoted
    case (_, 0x0A): try endRecord(into: &reader)
    case (_, _) where separates(byte): endField()
    case (.fieldStart, UInt8(ascii: "\"")): place = .quoted
    case (.quoteInQuoted, 0x0D): break
    case (.quoteInQuoted, _): isBroken = true
    default:
      append(byte)
      place = .plain
    }
  }

  private mutating func separates(_ byte: UInt8) -> Bool {
    if let separator { return byte == separator }
    guard Self.separators.contains(byte) else { return false }
    separator = byte
    return true
  }

  private mutating func append(_ byte: UInt8) {
    if bytes <= LineSplitter.longest { field.append(byte) }
  }

  private mutating func endField() {
    defer {
      field.removeAll(keepingCapacity: true)
      place = .fieldStart
    }
    // One field more than a job has members is enough to detect too many.
    guard fields.count <= JSONParser.maxMembers else { return }
    if let text = String(validating: field, as: UTF8.self) {
      fields.append(text)
    } else {
      isBroken = true
    }
  }

  private mutating func endRecord(into reader: inout BatchLineReader) throws(Problem) {
    if place == .quoted { isBroken = true }
    if field.last == 0x0D, place == .plain { field.removeLast() }
    endField()
    defer {
      fields.removeAll(keepingCapacity: true)
      (bytes, lineBreaks, isBroken) = (0, 0, false)
    }
    let lines = lineBreaks
    guard let header else {
      try readHeader()
      reader.addContext("columns", Self.bytes(of: fields))
      return reader.skip(1 + lines)
    }
    reader.begin(item: Self.bytes(of: fields) + (isBroken ? [0xFF] : []))
    if bytes > LineSplitter.longest {
      reader.rejectLong()
    } else if isBroken {
      reader.reject(url: nil, .invalidOption, "The record has unbalanced quotes or is not UTF-8.")
    } else if fields == [""] {
      reader.skip()
    } else if fields.count > header.count {
      reader.reject(url: nil, .invalidOption, "The record has more fields than the header line.")
    } else {
      reader.add(.object(members(header)))
    }
    reader.skip(lines)
  }

  /// Joins the fields with a byte that never occurs in UTF-8.
  private static func bytes(of fields: [String]) -> [UInt8] {
    Array(fields.map { Array($0.utf8) }.joined(separator: [0xFE]))
  }

  private mutating func readHeader() throws(Problem) {
    // Spreadsheets may name the separator in a line before the header.
    if fields == ["sep=", ""] { return }
    guard !isBroken, bytes <= LineSplitter.longest else {
      throw Self.noHeader("it has unbalanced quotes or is not UTF-8.")
    }
    let names = fields.map { String(decoding: Array($0.utf8)[...].trimmingSpace, as: UTF8.self) }
    guard names.count <= JSONParser.maxMembers, Set(names).count == names.count else {
      throw Self.noHeader("it has a duplicate name or too many names.")
    }
    guard names.contains("url") || names.contains("local") else {
      throw Self.noHeader("it has neither url nor local.")
    }
    header = try names.map { name throws(Problem) in
      guard let option = JobOption(rawValue: name) else {
        throw Self.noHeader("a job has no member \"\(name.prefix(bytes: 64))\".")
      }
      return option
    }
    separator = separator ?? UInt8(ascii: ",")
  }

  private static func noHeader(_ reason: String) -> Problem {
    Problem(
      .invalidOption, "The header line must name members of a job: \(reason)")
  }

  /// Converts a record to the members of a job. Empty fields are left out.
  private func members(_ header: [JobOption]) -> [JSONValue.Member] {
    zip(header, fields).compactMap { option, text in
      text.isEmpty ? nil : option.member(in: text)
    }
  }
}
