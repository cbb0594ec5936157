internal import CCurl
internal import Jobs

/// The options of a transfer. Every libcurl feature that the service does not need is off.
extension Transfer {
  func setOptions() {
    set(CURLOPT_URL, plan.route.url)
    CCurl_setLong(easy, CURLOPT_NOSIGNAL, 1)
    setMethod()
    // A larger buffer needs a quarter of the reads. Memory that a slow transfer does not fill is never
    // touched.
    CCurl_setLong(easy, CURLOPT_BUFFERSIZE, 65_536)
    CCurl_setLong(easy, CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
    CCurl_setLong(easy, CURLOPT_HTTP09_ALLOWED, 0)
    // libcurl would also decode transfer codings on the loop's thread, without a limit on the output. Chunked
    // bodies are still decoded.
    CCurl_setLong(easy, CURLOPT_HTTP_CONTENT_DECODING, 0)
    set(CURLOPT_PROTOCOLS_STR, "http,https")
    CCurl_setLong(easy, CURLOPT_FOLLOWLOCATION, 0)
    CCurl_setLong(easy, CURLOPT_UNRESTRICTED_AUTH, 0)
    CCurl_setLong(easy, CURLOPT_NETRC, CCurl_netrcIgnored)
    CCurl_setLong(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
    // libcurl accepts at most an `Int32`.
    let connectTimeout = Int(Int32(clamping: settings.connectTimeout.inMilliseconds))
    CCurl_setLong(easy, CURLOPT_CONNECTTIMEOUT_MS, max(1, connectTimeout))
    setTLS()
    setProxy()
    setHeaders()
  }

  private func set(_ option: CURLoption, _ value: String) {
    _ = value.withCString { CCurl_setString(easy, option, $0) }
  }

  private func setMethod() {
    CCurl_setLong(easy, CURLOPT_HTTPGET, 1)
    switch plan.method {
    case .get: return
    case .delete: set(CURLOPT_CUSTOMREQUEST, "DELETE")
    case .put, .post:
      CCurl_setLong(easy, CURLOPT_UPLOAD, 1)
      CCurl_setLong(easy, CURLOPT_UPLOAD_BUFFERSIZE, 262_144)
      if plan.method == .post { set(CURLOPT_CUSTOMREQUEST, "POST") }
      CCurl_setOffset(easy, CURLOPT_INFILESIZE_LARGE, curl_off_t(plan.content?.count ?? 0))
    }
  }

  private func setTLS() {
    CCurl_setLong(easy, CURLOPT_SSL_VERIFYPEER, 1)
    CCurl_setLong(easy, CURLOPT_SSL_VERIFYHOST, 2)
    CCurl_setLong(easy, CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
    CCurl_setLong(easy, CURLOPT_SSL_SESSIONID_CACHE, 0)
    if let file = settings.certificateAuthorities { set(CURLOPT_CAINFO, file) }
  }

  /// Sets the proxy. An empty string keeps libcurl from using the environment's `http_proxy`. The proxy is
  /// asked to connect to the checked address, so that it does no lookup of its own.
  private func setProxy() {
    set(CURLOPT_NOPROXY, "")
    set(CURLOPT_PROXY, plan.route.proxy?.url ?? "")
    guard plan.route.proxy != nil else { return }
    CCurl_setLong(easy, CURLOPT_HTTPPROXYTUNNEL, 1)
    // With TLS inside TLS, unread data of the outer session cannot be detected.
    if isWithinTwoSessions { forbidReuse() }
    set(CURLOPT_CONNECT_TO, ["::\(plan.route.addresses[0].inURL):\(plan.route.port)"])
  }

  private func setHeaders() {
    var fields = plan.headers
    for (name, value) in [
      ("Accept", "image/*,*/*;q=0.5"), ("Accept-Encoding", "identity"),
      ("User-Agent", settings.userAgent),
    ] where !fields.contains(where: { $0.name.lowercased() == name.lowercased() }) {
      fields.append(HeaderField(name: name, value: value))
    }
    // In libcurl, "Name:" omits the field and "Name;" sends it empty.
    var lines = fields.map { $0.value.isEmpty ? "\($0.name);" : "\($0.name): \($0.value)" }
    // No `Expect: 100-continue`: sending the content costs less than a round trip, and few servers answer 100.
    if plan.content != nil { lines.append("Expect:") }
    set(CURLOPT_HTTPHEADER, lines)
    CCurl_setLong(easy, CURLOPT_HEADEROPT, Int(CURLHEADER_SEPARATE))
    if fields.contains(where: \.mayAuthenticateConnection) {
      CCurl_setLong(easy, CURLOPT_FRESH_CONNECT, 1)
      forbidReuse()
    }
  }

  private var isWithinTwoSessions: Bool {
    plan.route.url.hasPrefix("https:") && plan.route.proxy?.url.hasPrefix("https:") == true
  }
}

extension HeaderField {
  /// Schemes whose credentials apply to one request (RFC 7617, RFC 6750, RFC 7616), or are widely used that
  /// way.
  private static let ofOneRequest: Set<String> = [
    "apikey", "aws4-hmac-sha256", "basic", "bearer", "digest", "token",
  ]

  /// Whether the field may authenticate the whole connection, as with Negotiate and NTLM (RFC 4559 section
  /// 6). The origin would then treat later requests on it as requests of the same client.
  fileprivate var mayAuthenticateConnection: Bool {
    guard name.lowercased() == "authorization" else { return false }
    return !Self.ofOneRequest.contains(value.prefix { $0 != " " }.lowercased())
  }
}
