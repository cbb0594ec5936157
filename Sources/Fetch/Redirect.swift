internal import Jobs

/// Redirects as rules: we follow them ourselves, so that every hop is judged like the first.
enum Redirect {
  /// The statuses that send a GET elsewhere (RFC 9110 section 15.4).
  static func isRedirect(_ status: Int) -> Bool { [301, 302, 303, 307, 308].contains(status) }

  /// A `Location` field as text. Bytes beyond ASCII are percent-encoded as they are, whatever their character set, except
  /// in the host: that of an internationalised name is UTF-8.
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

  /// Where the authority of a reference ends (RFC 3986 section 3); 0 where it has none.
  private static func hostEnd(of reference: [UInt8]) -> Int {
    let slashes = Array("//".utf8)
    let end = reference.firstIndex { "/?#".utf8.contains($0) } ?? reference.endIndex
    let schemeEnd = reference[..<end].last == UInt8(ascii: ":") ? end : 0
    guard reference[schemeEnd...].starts(with: slashes) else { return 0 }
    let authority = reference[(schemeEnd + 2)...]
    return authority.firstIndex { "/?#".utf8.contains($0) } ?? reference.endIndex
  }

  /// Where a response sends us.
  /// - Parameter base: the URL that answered, its host in ASCII.
  static func target(of head: ResponseHead, from base: String) throws(FetchError) -> SourceURL {
    let locations = Set(head.fields.filter { $0.name.lowercased() == "location" }.map(\.value))
    let unusable = FetchError.badRedirect(
      // No more of it: what is in a URL may be meant for the origin alone.
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

  /// What names a host is read by ``SourceURL`` alone, which is stricter than libcurl: `http:/x`
  /// and `http:///x` name none.
  private static func absolute(_ reference: String, from base: String) -> String? {
    if scheme(of: reference) != nil { return reference }
    if reference.hasPrefix("//") { return scheme(of: base).map { "\($0):\(reference)" } }
    return CurlURL.resolve(reference.replacing(" ", with: "%20"), against: base)
  }

  /// The scheme of an absolute reference (RFC 3986 section 3.1), lower case; `javascript:` and
  /// `data:` have no "//".
  private static func scheme(of reference: String) -> String? {
    let head = reference.utf8.prefix { $0 != UInt8(ascii: ":") }
    guard head.count < reference.utf8.count, let first = head.first, isLetter(first),
      head.allSatisfy({ isLetter($0) || 0x30...0x39 ~= $0 || "+-.".utf8.contains($0) })
    else { return nil }
    return Substring(head).lowercased()
  }

  private static func isLetter(_ byte: UInt8) -> Bool { 0x61...0x7A ~= byte | 0x20 }
}
