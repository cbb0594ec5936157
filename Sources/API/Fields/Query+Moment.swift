internal import FoundationEssentials
internal import Jobs

extension Query {
  /// Reads a time in the format of RFC 3339: `2026-11-21T09:30:00.000Z`. Its letters may be lower case (section 5.6).
  mutating func moment(_ name: String) -> Timestamp? {
    guard let text = value(name) else { return nil }
    for hasFraction in [true, false] {
      let style = Date.ISO8601FormatStyle(includingFractionalSeconds: hasFraction)
      if let date = try? style.parse(text.uppercased()), abs(date.timeIntervalSince1970) < 1e11 {
        return Timestamp(milliseconds: Int64((date.timeIntervalSince1970 * 1_000).rounded()))
      }
    }
    addMistake(name, "Must be a time such as 2026-11-21T09:30:00Z.")
    return nil
  }
}
