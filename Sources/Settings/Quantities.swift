/// A unit of sizes or durations, such as in `1.5GB` and `500ms`. Quantities are integers, so that limits are exact.
package struct QuantityUnit: Sendable {
  package let name: String
  /// The unit in bytes or nanoseconds.
  let factor: Int

  package static let sizes = [
    QuantityUnit(name: "B", factor: 1),
    QuantityUnit(name: "KB", factor: 1000), QuantityUnit(name: "MB", factor: 1_000_000),
    QuantityUnit(name: "GB", factor: 1_000_000_000), QuantityUnit(name: "KiB", factor: 1 << 10),
    QuantityUnit(name: "MiB", factor: 1 << 20), QuantityUnit(name: "GiB", factor: 1 << 30),
  ]
  package static let durations = [
    QuantityUnit(name: "ms", factor: 1_000_000), QuantityUnit(name: "s", factor: 1_000_000_000),
    QuantityUnit(name: "m", factor: 60_000_000_000),
    QuantityUnit(name: "h", factor: 3_600_000_000_000),
    QuantityUnit(name: "d", factor: 86_400_000_000_000),
  ]
}

extension [QuantityUnit] {
  /// The names of the units, for a message.
  var names: String { map(\.name).joined(separator: ", ") }

  /// Parses a quantity in bytes or nanoseconds; a remaining fraction is cut off.
  ///
  /// - Parameter plain: the factor of a number without a unit.
  /// - Returns: Nil if the text is not a number with one of these units, or exceeds 64 bits.
  func quantity(_ text: String, plain: Int) -> Int? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    var rest = text[digits.endIndex...]
    var fraction: Substring = ""
    if rest.first == "." {
      fraction = rest.dropFirst().prefix { $0.isASCII && $0.isNumber }
      rest = rest[fraction.endIndex...]
      // A fraction needs a unit: "1.5" alone is ambiguous.
      guard !fraction.isEmpty, fraction.count <= 9, !rest.isEmpty else { return nil }
    }
    if rest.first == " " { rest.removeFirst() }
    guard let whole = Int(digits), let factor = factor(rest, plain: plain) else { return nil }
    let (product, overflow) = whole.multipliedReportingOverflow(by: factor)
    guard !overflow else { return nil }
    let (sum, carried) = product.addingReportingOverflow(part(fraction, of: factor))
    return carried ? nil : sum
  }

  /// The shortest exact text of a quantity. Only the smallest unit has fractions.
  package func text(_ quantity: Int) -> String {
    let whole = filter { quantity.isMultiple(of: $0.factor) }.max { $0.factor < $1.factor }
    if quantity == 0 { return "0" + (first?.name == "ms" ? "s" : first?.name ?? "") }
    if let whole { return "\(quantity / whole.factor)\(whole.name)" }
    guard let smallest = first else { return "\(quantity)" }
    var fraction = String(quantity % smallest.factor + smallest.factor).dropFirst()
    while fraction.last == "0" { fraction.removeLast() }
    return "\(quantity / smallest.factor).\(fraction)\(smallest.name)"
  }

  private func factor(_ unit: Substring, plain: Int) -> Int? {
    unit.isEmpty ? plain : first { $0.name == unit }?.factor
  }

  private func part(_ fraction: Substring, of factor: Int) -> Int {
    guard let numerator = Int(fraction) else { return 0 }
    var denominator = 1
    for _ in fraction { denominator *= 10 }
    let product = numerator.multipliedFullWidth(by: factor)
    return denominator.dividingFullWidth(product).quotient
  }
}

extension Duration {
  /// Parses a duration as in a configuration: `90s`, `12h`, `30d`, or a number of seconds. Returns nil if the text is not a
  /// duration or is longer than 100 years.
  package static func configured(_ text: String) -> Duration? {
    guard let nanoseconds = QuantityUnit.durations.quantity(text, plain: 1_000_000_000),
      nanoseconds <= 100 * 366 * 86_400_000_000_000
    else { return nil }
    return .nanoseconds(nanoseconds)
  }

  /// The duration in whole nanoseconds. Every duration in a configuration fits into 64 bits.
  package var inNanoseconds: Int {
    let (seconds, attoseconds) = components
    return Int(seconds) * 1_000_000_000 + Int(attoseconds / 1_000_000_000)
  }

  package static func minutes(_ count: Int) -> Duration { .seconds(60 * count) }
  package static func hours(_ count: Int) -> Duration { .minutes(60 * count) }
  package static func days(_ count: Int) -> Duration { .hours(24 * count) }
}

extension Int {
  /// The upper bound of sizes on disk, in bytes.
  package static let petabyte = 1_000_000_000_000_000
}
