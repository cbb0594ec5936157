internal import CCurl
internal import Glibc
internal import Jobs

/// libcurl's URL parser. Parsing URLs with it ensures that the policy checks the same host that libcurl
/// connects to.
enum CurlURL {
  /// Returns the ASCII form of an internationalised host name (UTS 46), or nil if it has none.
  static func asciiHost(_ host: String) -> String? {
    guard let url = curl_url() else { return nil }
    defer { curl_url_cleanup(url) }
    // libidn2 reads the name in the thread's locale, which is "C" in a service. Switch to UTF-8 for the call.
    let before = uselocale(utf8)
    defer { uselocale(before) }
    let text = "http://\(host)/"
    guard curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK else { return nil }
    return part(CURLUPART_HOST, of: url, flags: CURLU_PUNYCODE)?.lowercased()
  }

  /// Resolves the value of a `Location` field against the URL that returned it. Nil if it cannot be resolved.
  static func resolve(_ reference: String, against base: String) -> String? {
    guard let url = curl_url() else { return nil }
    defer { curl_url_cleanup(url) }
    let flags = UInt32(CURLU_URLENCODE)
    guard curl_url_set(url, CURLUPART_URL, base, 0) == CURLUE_OK,
      curl_url_set(url, CURLUPART_URL, reference, flags) == CURLUE_OK
    else { return nil }
    return part(CURLUPART_URL, of: url, flags: 0)
  }

  /// Splits an absolute URL. The host is returned without brackets, the user and password as written in the
  /// URL.
  static func parts(
    _ text: String
  ) -> (scheme: String, userInfo: String?, host: String, port: Int?)? {
    guard let url = curl_url() else { return nil }
    defer { curl_url_cleanup(url) }
    guard curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK,
      let scheme = part(CURLUPART_SCHEME, of: url, flags: 0),
      let host = part(CURLUPART_HOST, of: url, flags: 0)?.lowercased()
    else { return nil }
    let user = part(CURLUPART_USER, of: url, flags: 0)
    let password = part(CURLUPART_PASSWORD, of: url, flags: 0)
    let bare = host.hasPrefix("[") ? String(host.dropFirst().dropLast()) : host
    return (
      scheme, user.map { "\($0):\(password ?? "")" }, bare,
      part(CURLUPART_PORT, of: url, flags: 0).flatMap { Int($0) }
    )
  }

  private static func part(_ part: CURLUPart, of url: OpaquePointer, flags: Int32) -> String? {
    var text: UnsafeMutablePointer<CChar>?
    let code = curl_url_get(url, part, &text, UInt32(flags))
    // libcurl may also set the text when it fails, for example for a host without an ASCII form.
    defer { curl_free(text) }
    guard code == CURLUE_OK, let text else { return nil }
    return String(validatingCString: text)
  }

  /// Created once and never freed. "C.UTF-8" is part of glibc and needs no installed locale.
  nonisolated(unsafe) private static let utf8: locale_t? = newlocale(
    1 << LC_CTYPE, "C.UTF-8", nil)
}
