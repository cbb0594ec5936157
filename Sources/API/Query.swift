/// A query's members (`application/x-www-form-urlencoded`, as the URL standard reads it): taken one by one by whoever
/// knows them; what is left is unknown, and an error.
struct Query {
  private var items: [(name: String, value: String)] = []
  /// The names that were asked for while there was anything left.
  private var known: [String] = []
  /// What was wrong with those taken.
  var mistakes = Mistakes()

  /// - Parameter text: as sent, without the question mark.
  init(_ text: String?) {
    guard let text, !text.isEmpty else { return }
    for item in text.utf8.split(separator: UInt8(ascii: "&")) {
      let equals = item.firstIndex(of: UInt8(ascii: "=")) ?? item.endIndex
      guard let name = Self.decoded(item[..<equals]),
        let value = Self.decoded(item[equals...].dropFirst())
      else {
        mistakes.add(
          .parameter(String(item.prefix(64)) ?? ""), .invalidOption,
          "This is not percent-encoded UTF-8 without NUL.")
        continue
      }
      items.append((name, value))
    }
  }

  /// Whether a member of that name is left.
  mutating func has(_ name: String) -> Bool {
    if !items.isEmpty { known.append(name) }
    return items.contains { $0.name == name }
  }

  /// All values of that name.
  mutating func all(_ name: String) -> [String] {
    guard !items.isEmpty else { return [] }
    known.append(name)
    defer { items.removeAll { $0.name == name } }
    return items.filter { $0.name == name }.map(\.value)
  }

  /// The value of that name, which may stand there once.
  mutating func one(_ name: String) -> String? {
    let values = all(name)
    if values.count > 1 { wrong(name, "It stands there more than once.") }
    return values.first
  }

  /// `true` or `false`; false where it isn't given.
  mutating func bool(_ name: String) -> Bool {
    switch one(name) {
    case nil, "false": return false
    case "true": return true
    case _?:
      wrong(name, "It is true or false.")
      return false
    }
  }

  /// A number of seconds, which may have a fraction.
  mutating func seconds(_ name: String) -> Double? {
    guard let text = one(name) else { return nil }
    guard let seconds = JSONValue(numberIn: text)?.double, seconds >= 0 else {
      wrong(name, "It is a number of seconds.")
      return nil
    }
    return seconds
  }

  /// A whole number within the range.
  mutating func int(_ name: String, in range: ClosedRange<Int>) -> Int? {
    guard let text = one(name) else { return nil }
    guard let number = JSONValue(numberIn: text)?.int, range ~= number else {
      wrong(name, "It is a whole number from \(range.lowerBound) to \(range.upperBound).")
      return nil
    }
    return number
  }

  /// A number within the range, which may have a fraction.
  mutating func number(_ name: String, in range: ClosedRange<Int>) -> Double? {
    guard let text = one(name) else { return nil }
    guard let number = JSONValue(numberIn: text)?.double,
      Double(range.lowerBound)...Double(range.upperBound) ~= number
    else {
      wrong(name, "It is a number from \(range.lowerBound) to \(range.upperBound).")
      return nil
    }
    return number
  }

  /// Notes a mistake in a member.
  mutating func wrong(_ name: String, _ detail: String) {
    mistakes.add(Location(root: .query, member: name), .invalidOption, detail)
  }

  /// Throws all that was wrong, members that nobody took and what else the request got wrong included.
  mutating func finish(with others: Mistakes = Mistakes()) throws(Problem) {
    mistakes.add(others)
    for item in items {
      guard !mistakes.isFull else { break }
      let hint = mistakes.hint(for: item.name, among: known)
      wrong(item.name, "There is no such query member here.\(hint)")
    }
    items = []
    try mistakes.check()
  }

  private static func decoded(_ text: Substring.UTF8View) -> String? {
    var bytes: [UInt8] = []
    var rest = text
    while let byte = rest.popFirst() {
      switch byte {
      case UInt8(ascii: "+"): bytes.append(0x20)
      case UInt8(ascii: "%"):
        guard let high = rest.popFirst().flatMap(hexDigit),
          let low = rest.popFirst().flatMap(hexDigit)
        else { return nil }
        bytes.append(high << 4 | low)
      default: bytes.append(byte)
      }
    }
    return bytes.contains(0) ? nil : String(validating: bytes, as: UTF8.self)
  }

  private static func hexDigit(_ byte: UInt8) -> UInt8? {
    Character(Unicode.Scalar(byte)).hexDigitValue.map(UInt8.init)
  }
}

extension JSONValue {
  /// The number that the text is, by JSON's grammar; nil for anything else.
  init?(numberIn text: String) {
    guard text.utf8.count <= 64,
      case .number(let number)? = try? JSONParser.parse(Array(text.utf8), maxValues: 1),
      number.utf8.count == text.utf8.count
    else { return nil }
    self = .number(number)
  }
}
