/// A parser for the few parts of S3's XML that are needed: it finds an element's text by its name
/// at any depth. Only XML's five predefined entities and character references are decoded, so
/// entities can't expand.
struct S3XML {
  private let text: Substring.UTF8View

  init(_ bytes: [UInt8]) { text = String(decoding: bytes, as: UTF8.self)[...].utf8 }

  private init(_ text: Substring.UTF8View) { self.text = text }

  func first(_ name: String) -> String? { element(name, from: text.startIndex)?.content.unescaped }

  /// All elements of this name, without nested ones.
  func all(_ name: String) -> [S3XML] {
    var found: [S3XML] = []
    var start = text.startIndex
    while let (content, end) = element(name, from: start) {
      found.append(content)
      start = end
    }
    return found
  }

  private func element(
    _ name: String, from start: Substring.Index
  ) -> (content: S3XML, end: Substring.Index)? {
    let rest = text[start...]
    guard let opening = Self.range(of: "<\(name)>", in: rest),
      let closing = Self.range(of: "</\(name)>", in: rest[opening.upperBound...])
    else { return nil }
    return (S3XML(rest[opening.upperBound..<closing.lowerBound]), closing.upperBound)
  }

  private static func range(
    of word: String, in text: Substring.UTF8View
  ) -> Range<Substring.Index>? {
    let word = Array(word.utf8)
    var start = text.startIndex
    while let candidate = text[start...].firstIndex(of: word[0]) {
      if text[candidate...].starts(with: word) {
        return candidate..<text.index(candidate, offsetBy: word.count)
      }
      start = text.index(after: candidate)
    }
    return nil
  }

  private var unescaped: String {
    let parts = String(Substring(text)).split(
      separator: "&", omittingEmptySubsequences: false)
    return parts.dropFirst().reduce(into: String(parts[0])) { result, part in
      guard let end = part.firstIndex(of: ";"),
        let character = Self.character(named: part[..<end])
      else {
        result += "&" + part
        return
      }
      result.append(character)
      result += part[part.index(after: end)...]
    }
  }

  private static func character(named name: Substring) -> Character? {
    switch name {
    case "amp": return "&"
    case "lt": return "<"
    case "gt": return ">"
    case "quot": return "\""
    case "apos": return "'"
    default:
      guard name.first == "#" else { return nil }
      let digits = name.dropFirst()
      let code =
        digits.first == "x" ? UInt32(digits.dropFirst(), radix: 16) : UInt32(digits, radix: 10)
      return code.flatMap(Unicode.Scalar.init).map(Character.init)
    }
  }
}
