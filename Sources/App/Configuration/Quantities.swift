/// Numbers with a unit: `1.5GB`, `500ms`. Exact, in integers: a limit is not a matter of rounding.
struct Unit: Sendable {
  let name: String
  /// In bytes, or in nanoseconds.
  let factor: Int

  static let sizes = [
    Unit(name: "B", factor: 1),
    Unit(name: "KB", factor: 1000), Unit(name: "MB", factor: 1_000_000),
    Unit(name: "GB", factor: 1_000_000_000), Unit(name: "KiB", factor: 1 << 10),
    Unit(name: "MiB", factor: 1 << 20), Unit(name: "GiB", factor: 1 << 30),
  ]
  static let durations = [
    Unit(name: "ms", factor: 1_000_000), Unit(name: "s", factor: 1_000_000_000),
    Unit(name: "m", factor: 60_000_000_000), Unit(name: "h", factor: 3_600_000_000_000),
    Unit(name: "d", factor: 86_400_000_000_000),
  ]
}

extension [Unit] {
  /// Their names, for a message.
  var names: String { map(\.name).joined(separator: ", ") }

  /// The quantity that a text says; fractions below the smallest whole are cut off.
  ///
  /// - Parameter plain: what a number without unit counts in.
  /// - Returns: nil when it is no number with one of these units, or beyond 64 bits.
  func quantity(_ text: String, plain: Int) -> Int? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    var rest = text[digits.endIndex...]
    var fraction: Substring = ""
    if rest.first == "." {
      fraction = rest.dropFirst().prefix { $0.isASCII && $0.isNumber }
      rest = rest[fraction.endIndex...]
      // Without a unit, "1.5" is as likely a slip as seconds.
      guard !fraction.isEmpty, fraction.count <= 9, !rest.isEmpty else { return nil }
    }
    if rest.first == " " { rest.removeFirst() }
    guard let whole = Int(digits), let factor = factor(rest, plain: plain) else { return nil }
    let (product, overflow) = whole.multipliedReportingOverflow(by: factor)
    guard !overflow else { return nil }
    let (sum, carried) = product.addingReportingOverflow(part(fraction, of: factor))
    return carried ? nil : sum
  }

  /// The text with the fewest digits that says it exactly; a fraction only of the smallest unit.
  func text(_ quantity: Int) -> String {
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
  /// What a duration's text in a configuration means (`90s`, `12h`, `30d`; a number alone is seconds); nil where it is
  /// none or is more than a hundred years.
  public static func configured(_ text: String) -> Duration? {
    guard let nanoseconds = Unit.durations.quantity(text, plain: 1_000_000_000),
      nanoseconds <= 100 * 366 * 86_400_000_000_000
    else { return nil }
    return .nanoseconds(nanoseconds)
  }

  /// Whole nanoseconds; every duration that a configuration holds fits.
  var inNanoseconds: Int {
    let (seconds, attoseconds) = components
    return Int(seconds) * 1_000_000_000 + Int(attoseconds / 1_000_000_000)
  }
}
