internal import YAML

/// The error message for a quoted number or boolean.
private let quoted = "is text; write it without quotes"

extension Scalar {
  /// Whether the scalar is quoted and would have this kind without quotes.
  fileprivate func isQuoted(_ kind: Kind) -> Bool {
    style == .quoted && Scalar(text, style: .plain).kind == kind
  }

  /// The integer in decimal, hexadecimal or octal (YAML 1.2 section 10.3.2); nil if it is too large.
  fileprivate var integer: Int? {
    switch text.prefix(2) {
    case "0x": Int(text.dropFirst(2), radix: 16)
    case "0o": Int(text.dropFirst(2), radix: 8)
    default: Int(text)
    }
  }
}

extension ValueFormat<Bool> {
  /// `true` or `false`.
  package static let boolean = ValueFormat("true or false", form: .plain) { scalar in
    guard scalar.kind == .boolean else {
      return .wrong(scalar.isQuoted(.boolean) ? quoted : "is not true or false")
    }
    return .value(scalar.text.lowercased() == "true")
  } show: {
    "\($0)"
  }
}

extension ValueFormat<Int> {
  /// An integer within bounds.
  package static func integer(_ bounds: ClosedRange<Int>) -> ValueFormat {
    let takes = "\(bounds.lowerBound)…\(bounds.upperBound)"
    return ValueFormat(takes, form: .plain) { scalar in
      guard scalar.kind == .integer else {
        return .wrong(scalar.isQuoted(.integer) ? quoted : "is not a whole number")
      }
      guard let value = scalar.integer, bounds.contains(value) else {
        return .wrong("is not within \(takes)")
      }
      return .value(value)
    } show: {
      "\($0)"
    }
  }

  /// A number of bytes within bounds.
  package static func size(_ bounds: ClosedRange<Int>) -> ValueFormat {
    let units = QuantityUnit.sizes
    let takes = "\(units.text(bounds.lowerBound))…\(units.text(bounds.upperBound))"
    return ValueFormat(takes, form: .plain) { scalar in
      guard let value = units.quantity(scalar.text, plain: 1), scalar.kind != .null else {
        return .wrong("is not a size (\(units.names))")
      }
      return bounds.contains(value) ? .value(value) : .wrong("is not within \(takes)")
    } show: {
      units.text($0)
    }
  }
}

extension ValueFormat<Duration> {
  /// A length of time within bounds.
  package static func duration(_ bounds: ClosedRange<Duration>) -> ValueFormat {
    let units = QuantityUnit.durations
    let lower = units.text(bounds.lowerBound.inNanoseconds)
    let takes = "\(lower)…\(units.text(bounds.upperBound.inNanoseconds))"
    return ValueFormat(takes, form: .plain) { scalar in
      guard let value = units.quantity(scalar.text, plain: 1_000_000_000), scalar.kind != .null
      else { return .wrong("is not a duration (\(units.names))") }
      let duration = Duration.nanoseconds(value)
      return bounds.contains(duration) ? .value(duration) : .wrong("is not within \(takes)")
    } show: {
      units.text($0.inNanoseconds)
    }
  }
}

extension ValueFormat<Double> {
  /// A number within bounds.
  package static func number(_ bounds: ClosedRange<Int>) -> ValueFormat {
    let takes = "\(bounds.lowerBound)…\(bounds.upperBound)"
    return ValueFormat(takes, form: .plain) { scalar in
      guard [.integer, .float].contains(scalar.kind), let value = Double(scalar.text) else {
        return .wrong("is not a number")
      }
      let fits = value >= Double(bounds.lowerBound) && value <= Double(bounds.upperBound)
      return fits ? .value(value) : .wrong("is not within \(takes)")
    } show: { value in
      Int(exactly: value).map { "\($0)" } ?? "\(value)"
    }
  }
}

extension ValueFormat where Value: RawRepresentable & CaseIterable, Value.RawValue == String {
  /// The raw value of one of the cases.
  package static func choice() -> ValueFormat {
    let takes = "one of " + Value.allCases.map(\.rawValue).joined(separator: ", ")
    return ValueFormat(takes, form: .text) { scalar in
      if let value = Value(rawValue: scalar.text) { return .value(value) }
      return .wrong("is not \(takes)")
    } show: {
      $0.rawValue
    }
  }
}

extension ValueFormat {
  /// The raw values of some of the cases, at least `minimum`.
  package static func choices<Case>(minimum: Int = 0) -> ValueFormat
  where Value == Set<Case>, Case: RawRepresentable & CaseIterable, Case.RawValue == String {
    ValueFormat<[Case]>.list(.choice(), minimum: minimum).converted(to: { Set($0) }) { chosen in
      Case.allCases.filter(chosen.contains)
    }
  }
}

extension ValueFormat<String> {
  /// Text that `judge` accepts.
  ///
  /// - Parameters:
  ///   - show: replaces the secret parts of the text.
  ///   - judge: returns nil, or the end of an error message that starts with the text.
  package static func text(
    _ takes: String, show: @escaping @Sendable (String) -> String = { $0 },
    judge: @escaping @Sendable (String) -> String?
  ) -> ValueFormat {
    ValueFormat(takes, form: .text, mention: show) { scalar in
      guard scalar.kind == .string else { return .wrong("is not text; write it in quotes") }
      if scalar.text.isEmpty { return .wrong("is empty") }
      if scalar.text.unicodeScalars.contains(where: LineText.isUnsafe) {
        return .wrong("contains control characters")
      }
      return judge(scalar.text).map { .wrong($0) } ?? .value(scalar.text)
    } show: {
      yaml(show($0))
    }
  }

  /// The text as YAML, without quotes if it can be read back unchanged.
  private static func yaml(_ text: String) -> String {
    let bare = text.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "/"),
        UInt8(ascii: "-"), UInt8(ascii: "_"):
        true
      default: false
      }
    }
    let starts = text.first.map { $0 != "-" } ?? false
    let isString = Scalar(text, style: .plain).kind == .string
    return bare && starts && isString ? text : LineText.quoted(text)
  }
}
