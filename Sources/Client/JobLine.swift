/// The progress line of a running job.
struct JobLine: Equatable {
  /// The job's state in one word.
  enum Phase: String {
    case queued, loading, retrying, waiting, saving
  }

  var name: String
  var phase = Phase.queued
  var completed = 0
  var total: Int?
  /// Bytes per second.
  var rate = 0.0

  /// Formats a number of bytes in the dashboard's units: `812 B`, `1.2 MB`, `57 MB`.
  static func amount(_ bytes: Int) -> String {
    guard bytes >= 1000 else { return "\(max(0, bytes)) B" }
    var value = Double(bytes) / 1000
    var units = ["kB", "MB", "GB", "TB", "PB", "EB"][...]
    while value >= 999.5, units.count > 1 {
      value /= 1000
      units.removeFirst()
    }
    let tenths = Int((value * 10).rounded())
    let number = tenths < 100 ? "\(tenths / 10).\(tenths % 10)" : "\(Int(value.rounded()))"
    return "\(number) \(units.first ?? "")"
  }

  /// Formats bytes per second. Empty below one.
  static func pace(_ rate: Double) -> String { rate < 1 ? "" : amount(Int(min(rate, 1e18))) + "/s" }

  /// Returns the line, at most `width` columns wide.
  func text(width: Int, style: Style) -> String {
    let nameWidth = min(28, max(8, width / 4))
    var line = PlainText.columns(name, atMost: nameWidth).padded(to: nameWidth)
    let amounts =
      total.map { "\(Self.amount(completed))/\(Self.amount($0))" }
      ?? (completed > 0 ? Self.amount(completed) : "")
    let tail =
      amounts.padded(to: 19, onTheLeft: true)
      + Self.pace(rate).padded(to: 12, onTheLeft: true)
    let word = phase.rawValue.padded(to: 8)
    let barWidth = width - nameWidth - tail.count - word.count - 5
    if barWidth >= 6 { line += "  " + bar(barWidth, style) }
    // If the terminal is too narrow for everything, show the name and the phase.
    guard width >= nameWidth + 2 + word.count else { return String(line.prefix(max(0, width))) }
    if barWidth >= 0 { line += " " + tail }
    return line + "  " + style.faint(word)
  }

  private func bar(_ width: Int, _ style: Style) -> String {
    var filled = 0
    if let total, total > 0 {
      filled = Int(Double(width) * min(1, max(0, Double(completed) / Double(total))))
    }
    let full = String(repeating: style.isUnicode ? "━" : "#", count: filled)
    let empty = String(repeating: style.isUnicode ? "─" : "-", count: width - filled)
    return style.active(full) + style.faint(empty)
  }
}

extension String {
  fileprivate func padded(to width: Int, onTheLeft isLeft: Bool = false) -> String {
    let blanks = String(repeating: " ", count: max(0, width - count))
    return isLeft ? blanks + self : self + blanks
  }
}
