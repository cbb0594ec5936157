/// Names, labels and numbers as Prometheus's text format has them.
enum MetricName {
  /// `[a-zA-Z_:][a-zA-Z0-9_:]*`, all else turned to `_`.
  static func sanitized(_ label: String) -> String {
    let name = String(
      label.unicodeScalars.map { scalar -> Character in
        isNameScalar(scalar) || scalar == ":" ? Character(scalar) : "_"
      })
    return name.first.map { $0.isNumber } ?? true ? "_" + name : name
  }

  /// A counter's, which ends in `_total`.
  static func counter(_ label: String) -> String {
    let name = sanitized(label)
    return name.hasSuffix("_total") ? name : name + "_total"
  }

  /// A timer's, which ends in `_seconds`.
  static func timer(_ label: String) -> String {
    let name = sanitized(label)
    return name.hasSuffix("_seconds") ? name : name + "_seconds"
  }

  /// What stands between braces: sorted by name, each name once, the last value of it.
  static func labels(_ dimensions: [(String, String)]) -> String {
    if dimensions.isEmpty { return "" }
    var values: [String: String] = [:]
    for (label, value) in dimensions { values[labelName(label)] = value }
    return values.sorted { $0.key < $1.key }
      .map { "\($0.key)=\"\(escapedValue($0.value))\"" }
      .joined(separator: ",")
  }

  /// A line of `# HELP`: backslashes and line feeds escaped.
  static func escapedHelp(_ text: String) -> String {
    escaped(text, quotes: false)
  }

  /// A sample's value.
  static func number(_ value: Double) -> String {
    if value.isNaN { return "NaN" }
    if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
    if let whole = Int64(exactly: value) { return "\(whole)" }
    return "\(value)"
  }

  /// `le` is the histogram's own, and two underscores begin Prometheus's.
  private static func labelName(_ label: String) -> String {
    let name = sanitized(label).replacing(":", with: "_")
    return name == "le" || name.hasPrefix("__") ? "label_" + name : name
  }

  private static func escapedValue(_ text: String) -> String {
    let limit = 256
    let scalars = text.unicodeScalars
    return escaped(scalars.count > limit ? String(scalars.prefix(limit)) : text, quotes: true)
  }

  private static func escaped(_ text: String, quotes: Bool) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      case "\"" where quotes: result += "\\\""
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private static func isNameScalar(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar {
    case "a"..."z", "A"..."Z", "0"..."9", "_": true
    default: false
    }
  }
}
