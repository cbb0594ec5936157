internal import Glibc

/// Validates addresses, host names and URLs in a configuration. It checks only their form; the fetcher decides which
/// addresses may be connected to.
package enum AddressText {
  /// The 4 or 16 bytes of an IPv4 or IPv6 address; nil if the text is not an address.
  package static func bytes(_ text: some StringProtocol) -> [UInt8]? {
    let text = String(text)
    var bytes = [UInt8](repeating: 0, count: 16)
    if inet_pton(AF_INET, text, &bytes) == 1 { return Array(bytes.prefix(4)) }
    return inet_pton(AF_INET6, text, &bytes) == 1 ? bytes : nil
  }

  static func isAddress(_ text: some StringProtocol) -> Bool { bytes(text) != nil }

  package static func isLoopback(_ host: String) -> Bool {
    guard var bytes = bytes(host) else { return host == "localhost" }
    if bytes.count == 16 {
      let isOne = bytes.dropLast().allSatisfy { $0 == 0 } && bytes.last == 1
      let isMapped = bytes.prefix(10).allSatisfy { $0 == 0 } && bytes[10...11] == [0xFF, 0xFF]
      guard isMapped else { return isOne }
      bytes.removeFirst(12)
    }
    return bytes[0] == 127
  }

  /// Returns what is wrong with a CIDR, or nil if it is valid.
  static func networkMistake(_ text: String) -> String? {
    let parts = text.split(separator: "/", omittingEmptySubsequences: false)
    guard let address = bytes(parts[0]) else {
      return "is not a network (CIDR, such as 10.0.0.0/8 or fd00::/8)"
    }
    let bits = 8 * address.count
    guard parts.count == 2 else { return "has no prefix length; one address is \(text)/\(bits)" }
    guard parts[1].utf8.allSatisfy({ (0x30...0x39).contains($0) }), let prefix = Int(parts[1]),
      prefix <= bits
    else { return "has a prefix length that is not within 0…\(bits)" }
    guard (prefix..<bits).allSatisfy({ address[$0 / 8] & (0x80 >> UInt8($0 % 8)) == 0 }) else {
      return "has bits set beyond its prefix length of \(prefix)"
    }
    return nil
  }

  /// Returns what is wrong with a host pattern, or nil if it is valid. A pattern is a name, an address, or `*.` and a name.
  static func hostPatternMistake(_ text: String) -> String? {
    if isAddress(text) { return nil }
    guard text.allSatisfy(\.isASCII) else { return "is not ASCII; write it as its xn--… form" }
    let name = text.hasPrefix("*.") ? text.dropFirst(2) : text[...]
    return isName(name) ? nil : "is not a host name (such as example.org or *.example.org)"
  }

  /// Whether the text consists of scheme, host and optional port, in the form that browsers send in `Origin`.
  static func isOrigin(_ text: String) -> Bool {
    guard let (scheme, rest) = split(text) else { return false }
    return ["http", "https"].contains(scheme) && isAuthority(rest) && text == text.lowercased()
  }

  static func isProxy(_ text: String) -> Bool {
    guard let (scheme, rest) = split(text) else { return false }
    let hasSlash = rest.last == "/"
    let place = (hasSlash ? rest.dropLast() : rest).split(separator: "@", maxSplits: 1)
    return ["http", "https"].contains(scheme)
      && (place.last.map(isAuthority) ?? false)
  }

  /// The URL with user and password replaced by `hidden`.
  static func hidingCredentials(_ url: String) -> String {
    guard let at = url.lastIndex(of: "@") else { return url }
    let scheme = split(url).map { $0.scheme + "://" } ?? ""
    return scheme + "hidden" + url[at...]
  }

  /// A database URL with user and password replaced by `hidden`, and its options too if they may contain a password.
  package static func hidingSecrets(_ url: String) -> String {
    // libpq allows a question mark in a password, so hide the credentials before looking for the options.
    let shown = hidingCredentials(url)
    guard let mark = shown.firstIndex(of: "?") else { return shown }
    let options = shown[shown.index(after: mark)...]
    // The name of an option may be percent-encoded, so options with a percent sign are hidden too.
    let isOpen = !options.lowercased().contains("password") && !options.contains("%")
    return isOpen ? shown : shown[...mark] + "hidden"
  }

  private static func split(_ url: String) -> (scheme: Substring, rest: Substring)? {
    guard let range = url.firstRange(of: "://") else { return nil }
    return (url[..<range.lowerBound], url[range.upperBound...])
  }

  private static func isAuthority(_ text: Substring) -> Bool {
    let end = text.first == "[" ? text.firstIndex(of: "]") : text.firstIndex(of: ":")
    let host: Substring
    var port: Substring = ""
    if text.first == "[" {
      guard let end else { return false }
      host = text[text.index(after: text.startIndex)..<end]
      guard host.contains(":"), isAddress(host) else { return false }
      port = text[text.index(after: end)...]
    } else {
      host = text[..<(end ?? text.endIndex)]
      guard isName(host) else { return false }
      port = text[(end ?? text.endIndex)...]
    }
    guard let colon = port.first else { return true }
    let number = Int(port.dropFirst()) ?? 0
    return colon == ":" && (1...65_535).contains(number)
  }

  private static func isName(_ name: Substring) -> Bool {
    let labels = name.split(separator: ".", omittingEmptySubsequences: false)
    return name.utf8.count <= 253
      && labels.allSatisfy { label in
        (1...63).contains(label.utf8.count) && label.first != "-" && label.last != "-"
          && label.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "-_".contains($0)) }
      }
  }
}
