internal import Jobs

/// `application/json`: `{ "defaults": {…}, "jobs": […], "notify": {…} }`, parsed while it arrives. Each element of
/// `jobs` counts as a line. `defaults` must come before `jobs`, because jobs are created at once.
struct JSONBatchFormat: BatchFormat {
  /// What the parser expects next.
  private enum Place: Equatable {
    case start, member, colon, value, element, afterMember, afterElement, end
  }

  private var place = Place.start
  private var isFirst = true
  private var name = ""
  private var value = ValueBytes()
  private var hasJobs = false
  /// The members except `jobs`, in the order received.
  private(set) var members: [JSONValue.Member] = []
  private let known: Set<String>
  private let following: Set<String>
  private let onMembers:
    @Sendable ([JSONValue.Member], inout BatchLineReader) throws(Problem) -> Void

  /// - Parameters:
  ///   - known: the allowed members in addition to `jobs`.
  ///   - following: those that may also come after `jobs`, as with clients that sort members by name.
  ///   - onMembers: called with the members before `jobs`, and with each one after it.
  init(
    known: Set<String>, following: Set<String> = [],
    onMembers:
      @escaping @Sendable ([JSONValue.Member], inout BatchLineReader) throws(Problem) -> Void
  ) {
    (self.known, self.following, self.onMembers) = (known, following, onMembers)
  }

  mutating func read(_ piece: [UInt8], into reader: inout BatchLineReader) throws(Problem) {
    for byte in piece { try read(byte, into: &reader) }
  }

  mutating func finish(into reader: inout BatchLineReader) throws(Problem) {
    guard place == .end else { throw Self.malformed("the text ends too early") }
    guard hasJobs else { throw Problem(.invalidOption, "jobs is missing.") }
  }

  private mutating func read(_ byte: UInt8, into reader: inout BatchLineReader) throws(Problem) {
    if value.isOpen {
      guard value.consume(byte) else { return }
      try complete(into: &reader)
      // A number ends at the byte after it, which is read here.
      if !value.consumedLast { try read(byte, into: &reader) }
      return
    }
    if [0x20, 0x09, 0x0A, 0x0D].contains(byte) { return }
    switch (place, byte) {
    case (.start, UInt8(ascii: "{")): (place, isFirst) = (.member, true)
    case (.start, _) where Self.mayBegin(byte):
      throw Problem(.invalidOption, "Must be an object with jobs.")
    case (.member, UInt8(ascii: "}")) where isFirst: place = .end
    case (.member, UInt8(ascii: "\"")): try value.begin(byte)
    case (.colon, UInt8(ascii: ":")): place = .value
    case (.value, UInt8(ascii: "[")) where name == "jobs":
      hasJobs = true
      try onMembers(members, &reader)
      (place, isFirst) = (.element, true)
    case (.value, _): try value.begin(byte)
    case (.element, UInt8(ascii: "]")) where isFirst: place = .afterMember
    case (.element, _): try value.begin(byte)
    case (.afterElement, UInt8(ascii: ",")): (place, isFirst) = (.element, false)
    case (.afterElement, UInt8(ascii: "]")): place = .afterMember
    case (.afterMember, UInt8(ascii: ",")): (place, isFirst) = (.member, false)
    case (.afterMember, UInt8(ascii: "}")): place = .end
    default: throw Self.malformed("\"\(Character(Unicode.Scalar(byte)))\" is not expected here")
    }
  }

  private mutating func complete(into reader: inout BatchLineReader) throws(Problem) {
    let bytes = value.removeAll()
    switch place {
    case .member:
      name = try Self.parsed(bytes).string ?? ""
      guard known.contains(name) || name == "jobs" else {
        throw Problem(
          .invalidOption,
          "Unknown member \"\(name.prefix(bytes: 64))\". Use defaults, jobs and notify.")
      }
      guard !members.contains(where: { $0.name == name }), !(hasJobs && name == "jobs") else {
        throw Self.malformed("a name is used twice in one object")
      }
      guard !hasJobs || following.contains(name) else {
        throw Problem(
          .invalidOption, "Move \(name) before jobs: jobs are created as they arrive.")
      }
      place = .colon
    case .value:
      guard name != "jobs" else { throw Problem(.invalidOption, "jobs must be an array.") }
      let member = JSONValue.Member(name: name, value: try Self.parsed(bytes))
      members.append(member)
      reader.addContext(name, bytes)
      if hasJobs { try onMembers([member], &reader) }
      place = .afterMember
    default:
      reader.begin(item: bytes)
      if bytes.count > LineSplitter.longest {
        reader.rejectLong()
      } else {
        reader.add(json: bytes[...])
      }
      place = .afterElement
    }
  }

  private static func parsed(_ bytes: [UInt8]) throws(Problem) -> JSONValue {
    guard bytes.count <= LineSplitter.longest else {
      throw Problem(.bodyTooLarge, "A member is longer than \(LineSplitter.longest) bytes.")
    }
    do { return try JSONParser.parse(bytes, maxValues: BatchLineReader.maxValues) } catch {
      throw Problem(error)
    }
  }

  /// Whether a JSON value other than an object can start with this byte.
  private static func mayBegin(_ byte: UInt8) -> Bool {
    0x30...0x39 ~= byte || "[\"-tfn".utf8.contains(byte)
  }

  private static func malformed(_ reason: String) -> Problem {
    Problem(.malformedJSON, "The body is not JSON: \(reason).")
  }
}

/// Collects the bytes of one JSON value and finds its end, without parsing it.
private struct ValueBytes {
  private var bytes: [UInt8] = []
  private var depth = 0
  private var isString = false
  private var isEscaped = false
  /// Whether a value has begun but not ended.
  private(set) var isOpen = false
  /// Whether the last byte passed to ``consume(_:)`` belongs to the value.
  private(set) var consumedLast = true

  mutating func begin(_ byte: UInt8) throws(Problem) {
    guard !",:]}".utf8.contains(byte) else {
      throw Problem(.malformedJSON, "The body is not JSON: a value is missing.")
    }
    isOpen = true
    (isString, isEscaped, depth) = (byte == UInt8(ascii: "\""), false, 0)
    if byte == UInt8(ascii: "{") || byte == UInt8(ascii: "[") { depth = 1 }
    bytes.append(byte)
  }

  /// - Returns: whether the value has ended.
  mutating func consume(_ byte: UInt8) -> Bool {
    consumedLast = true
    if isString {
      append(byte)
      if isEscaped {
        isEscaped = false
      } else if byte == UInt8(ascii: "\\") {
        isEscaped = true
      } else if byte == UInt8(ascii: "\"") {
        isString = false
        return depth == 0
      }
      return false
    }
    if depth == 0, " \t\r\n,]}".utf8.contains(byte) {
      consumedLast = false
      return true
    }
    append(byte)
    switch byte {
    case UInt8(ascii: "\""): isString = true
    case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
    case UInt8(ascii: "}"), UInt8(ascii: "]"):
      depth -= 1
      return depth == 0
    default: break
    }
    return false
  }

  /// One byte above the maximum is kept, which shows that the value is too long.
  private mutating func append(_ byte: UInt8) {
    if bytes.count <= LineSplitter.longest { bytes.append(byte) }
  }

  mutating func removeAll() -> [UInt8] {
    isOpen = false
    defer { bytes.removeAll(keepingCapacity: bytes.capacity < 1 << 16) }
    return bytes
  }
}
