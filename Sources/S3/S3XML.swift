package import Jobs

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

/// Errors of an object store.
package enum S3Error: Error, Sendable, Equatable {
  /// No response, or an incomplete one.
  case unreachable(FetchError)
  /// The store answered with an error: the status, and the code and message of its XML if present.
  case refused(status: Int, code: String, message: String)
  /// The response or request is not valid.
  case unexpected(String)
  /// The store's checksum differs from the bytes sent.
  case checksumMismatch
  /// No credentials to sign with.
  case noCredentials(String)

  /// Whether the same request may succeed soon.
  var isRetryable: Bool {
    switch self {
    case .unreachable(.cancelled), .unreachable(.tooLarge), .unreachable(.headerTooLarge),
      .unreachable(.badHost):
      false
    case .unreachable: true
    // 400 RequestTimeout means that the connection was too slow. InternalError and
    // ServiceUnavailable also occur with status 200.
    case .refused(let status, let code, _):
      TransientStatus.contains(status)
        || [
          "RequestTimeout", "SlowDown", "OperationAborted", "InternalError", "ServiceUnavailable",
        ].contains(code)
    case .checksumMismatch, .unexpected, .noCredentials: false
    }
  }

  /// Whether the store has no space left: status 507 (RFC 4918), or QuotaExceeded.
  var isFull: Bool {
    guard case .refused(let status, let code, _) = self else { return false }
    return status == 507 || code == "QuotaExceeded"
  }
}

extension S3Error: CustomStringConvertible {
  /// A description for the log.
  package var description: String {
    switch self {
    case .unreachable(let error): "the object store can't be reached: \(error)"
    case .refused(let status, let code, let message):
      "the object store responded with \(status) \(code): \(message)"
    case .unexpected(let what): "the request to the object store failed: \(what)"
    case .checksumMismatch: "the object store's checksum differs from the bytes sent"
    case .noCredentials(let why): "no credentials for the object store: \(why)"
    }
  }
}
