internal import Jobs

/// Rules for redirects. The fetcher follows redirects itself, so that each target is checked like the first
/// URL.
enum Redirect {
  /// Whether a status redirects a GET (RFC 9110 section 15.4).
  static func isRedirect(_ status: Int) -> Bool { [301, 302, 303, 307, 308].contains(status) }

  /// Converts a `Location` field to text. Bytes beyond ASCII are percent-encoded unchanged, whatever their
  /// character set. In the host they are kept as UTF-8, for internationalised names.
  static func text(of location: [UInt8]) -> String {
    let start = hostEnd(of: location)
    var encoded = Array(location[..<start])
    for byte in location[start...] {
      if byte < 0x80 {
        encoded.append(byte)
      } else {
        encoded += "%".utf8
        encoded += [hexDigits[Int(byte >> 4)], hexDigits[Int(byte & 0xF)]]
      }
    }
    return String(decoding: encoded, as: UTF8.self)
  }

  private static let hexDigits = Array("0123456789ABCDEF".utf8)

  /// Returns the end of a reference's authority (RFC 3986 section 3), or 0 if it has none.
  private static func hostEnd(of reference: [UInt8]) -> Int {
    let slashes = Array("//".utf8)
    let end = reference.firstIndex { "/?#".utf8.contains($0) } ?? reference.endIndex
    let schemeEnd = reference[..<end].last == UInt8(ascii: ":") ? end : 0
    guard reference[schemeEnd...].starts(with: slashes) else { return 0 }
    let authority = reference[(schemeEnd + 2)...]
    return authority.firstIndex { "/?#".utf8.contains($0) } ?? reference.endIndex
  }

  /// Returns the URL that a redirect leads to.
  /// - Parameter base: The URL that returned the redirect, its host in ASCII.
  static func target(of head: ResponseHead, from base: String) throws(FetchError) -> SourceURL {
    let locations = Set(head.fields.filter { $0.name.lowercased() == "location" }.map(\.value))
    let unusable = FetchError.badRedirect(
      // Only the scheme, because the rest of the URL may be confidential.
      status: head.status, location: locations.first.map { scheme(of: $0).map { $0 + ":…" } ?? "…" }
    )
    guard locations.count == 1, let location = locations.first, !location.isEmpty,
      location.utf8.count <= SourceURL.maxLength,
      !location.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F || $0 == UInt8(ascii: "\\") })
    else { throw unusable }
    if let scheme = scheme(of: location), scheme != "http", scheme != "https" {
      throw .blocked(target: "A redirect", .scheme(String(scheme.prefix(32))))
    }
    guard let text = absolute(location, from: base), let url = SourceURL(text) else {
      throw unusable
    }
    return url
  }

  /// Returns an absolute URL. A reference with a host is not resolved by libcurl but left to ``SourceURL``,
  /// which is stricter: `http:/x` and `http:///x` have no host.
  private static func absolute(_ reference: String, from base: String) -> String? {
    if scheme(of: reference) != nil { return reference }
    if reference.hasPrefix("//") { return scheme(of: base).map { "\($0):\(reference)" } }
    return CurlURL.resolve(reference.replacing(" ", with: "%20"), against: base)
  }

  /// Returns the scheme of an absolute reference (RFC 3986 section 3.1) in lower case. `javascript:` and
  /// `data:` references have one, too, although no "//" follows.
  private static func scheme(of reference: String) -> String? {
    let head = reference.utf8.prefix { $0 != UInt8(ascii: ":") }
    guard head.count < reference.utf8.count, let first = head.first, isLetter(first),
      head.allSatisfy({ isLetter($0) || 0x30...0x39 ~= $0 || "+-.".utf8.contains($0) })
    else { return nil }
    return Substring(head).lowercased()
  }

  private static func isLetter(_ byte: UInt8) -> Bool { 0x61...0x7A ~= byte | 0x20 }
}
