internal import CCurl
internal import Glibc
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

/// The callbacks that libcurl runs on the loop's thread during a transfer. They neither block nor call
/// libcurl back.
extension Transfer {
  func installCallbacks() {
    let context = Unmanaged.passUnretained(self).toOpaque()
    CCurl_setPointer(easy, CURLOPT_PRIVATE, context)
    CCurl_setWriteFunction(easy, CURLOPT_WRITEFUNCTION, bodyCallback)
    CCurl_setPointer(easy, CURLOPT_WRITEDATA, context)
    CCurl_setWriteFunction(easy, CURLOPT_HEADERFUNCTION, headerLineCallback)
    CCurl_setPointer(easy, CURLOPT_HEADERDATA, context)
    if plan.content != nil {
      CCurl_setReadFunction(easy, contentCallback)
      CCurl_setPointer(easy, CURLOPT_READDATA, context)
      CCurl_setSeekFunction(easy, seekContent)
      CCurl_setPointer(easy, CURLOPT_SEEKDATA, context)
    }
    CCurl_setOpenSocketFunction(easy, openSocket)
    CCurl_setPointer(easy, CURLOPT_OPENSOCKETDATA, context)
    // The connection may outlive the transfer, but not the loop and its idle connections.
    CCurl_setCloseSocketFunction(easy, closeSocket)
    CCurl_setPointer(
      easy, CURLOPT_CLOSESOCKETDATA, Unmanaged.passUnretained(idle).toOpaque())
    CCurl_setPrereqFunction(easy, judgePeer)
    CCurl_setPointer(easy, CURLOPT_PREREQDATA, context)
    CCurl_setPointer(easy, CURLOPT_RESOLVER_START_DATA, context)
  }

  fileprivate static func at(_ context: UnsafeMutableRawPointer?) -> Transfer? {
    context.map { Unmanaged<Transfer>.fromOpaque($0).takeUnretainedValue() }
  }

  /// Passes bytes of the body to the exchange.
  /// - Returns: The number of bytes, or the value that makes libcurl pause or stop.
  fileprivate func receiveBody(_ body: UnsafeBufferPointer<UInt8>) -> Int {
    lastByte = .now
    if let goesOn = countDiscarded(body.count) { return goesOn ? body.count : Self.stop }
    // Before its socket is watched, the transfer must not pause: its connection would count as idle although
    // data is pending. By then libcurl has read at most a hundred times its buffer size, which is 6.6 MB.
    switch exchange.append(body, mayHoldBack: socket != nil) {
    case .taken: return body.count
    case .holdBack:
      pause()
      return Int(CURL_WRITEFUNC_PAUSE)
    case .refused: return Self.stop
    case .tooMany(let limit):
      failure = .tooLarge(limit: limit)
      return Self.stop
    }
  }

  /// Copies the next piece of the request's content into the buffer.
  /// - Returns: The number of bytes; 0 after the last; `CURL_READFUNC_ABORT` if they cannot be read.
  fileprivate func readContent(into buffer: UnsafeMutableRawBufferPointer) -> Int {
    lastByte = .now
    guard let content = plan.content else { return 0 }
    let wanted = min(buffer.count, content.count - sent)
    guard wanted > 0 else { return 0 }
    let bytes = content.read(sent, wanted)
    guard bytes.count == wanted else { return Int(CURL_READFUNC_ABORT) }
    buffer.copyBytes(from: bytes)
    sent += wanted
    return wanted
  }

  fileprivate func receive(headerLine line: UnsafeBufferPointer<UInt8>) -> Int {
    let now = ContinuousClock.now
    lastByte = now
    firstByte = firstByte ?? now
    // Lines after the body are a trailer section, which is ignored.
    if hasHead { return line.count }
    switch headerSection.parseLine(line) {
    case .more: return line.count
    case .complete:
      guard headerSection.status == statusOfLibrary else { return malformed() }
      failure = objectionToLength
      guard failure == nil else { return Self.stop }
      guard !headerSection.hasUnaskedCoding else {
        failure = unaskedCoding
        return Self.stop
      }
      if headerSection.isDoubtful { forbidReuse() }
      hasHead = true
      exchange.deliver(makeHead())
      return line.count
    case .tooLarge(let limit):
      failure = .headerTooLarge(limit)
      return Self.stop
    case .malformed: return malformed()
    }
  }

  private func malformed() -> Int {
    failure = .noResponse(host: plan.route.host, detail: "a malformed header section")
    return Self.stop
  }

  /// The final response's status as libcurl parsed it.
  private var statusOfLibrary: Int {
    var status = 0
    CCurl_getLong(easy, CURLINFO_RESPONSE_CODE, &status)
    return status
  }

  private var objectionToLength: FetchError? {
    switch headerSection.length {
    case .unsaid, .said: nil
    case .tooLarge: .tooLarge(limit: exchange.maxBytes)
    case .unclear(let detail): .noResponse(host: plan.route.host, detail: detail)
    }
  }

  // libcurl ends the transfer, because this is neither the number of bytes nor a pause.
  private static let stop = 0xFFFF_FFFF

  /// Whether libcurl may resolve the host without a pin. Only an IPv6 address has no pin; libcurl needs no
  /// lookup for it.
  fileprivate func resolvesWithoutPin() -> Bool {
    if plan.route.hasNoName { return true }
    failure = .connectFailure(
      host: plan.route.host, detail: "the resolved address could not be set")
    return false
  }

  /// The last check before a connection opens: only an address that was checked and pinned gets a socket.
  fileprivate func opens(_ address: IPAddress) -> Bool {
    connectingSince = connectingSince ?? .now
    if let proxy = plan.route.proxy { return proxy.addresses.contains(address) }
    if let reason = plan.route.policy.objection(to: address) {
      failure = .blocked(target: plan.route.host, reason)
      return false
    }
    return plan.route.addresses.contains(address)
  }

  /// The last check before the request is sent. It also covers the peer of a reused connection.
  fileprivate func sends(to peer: String) -> Bool {
    isConnected = true
    speaksHTTP2 = CCurl_speaksHTTP2(easy) == 1
    lastByte = .now
    guard plan.route.proxy == nil else { return true }
    guard let address = IPAddress(peer) else {
      failure = .blocked(target: plan.route.host, .address(peer, name: "unknown"))
      return false
    }
    guard let reason = plan.route.policy.objection(to: address) else { return true }
    failure = .blocked(target: plan.route.host, reason)
    return false
  }
}

extension Transfer {
  /// Whether no data arrived on the connection since its last response; such data would be read as the next
  /// response.
  ///
  /// libcurl does not report which idle connection it chose. Data on any of them therefore makes the transfer
  /// use a new connection.
  fileprivate func isConnectionUnused() -> Bool {
    let isNew = connectingSince != nil
    let hasUnread = !speaksHTTP2 && CCurl_hasUnreadPlaintext(easy) != 0
    needsNewConnection = !isNew && (idle.shutDownActive() || hasUnread)
    return !needsNewConnection
  }
}

private func bodyCallback(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let transfer = Transfer.at(context) else { return 0 }
  return transfer.receiveBody(UnsafeBufferPointer(raw: bytes, count: size * count))
}

private func headerLineCallback(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let transfer = Transfer.at(context) else { return 0 }
  return transfer.receive(headerLine: UnsafeBufferPointer(raw: bytes, count: size * count))
}

private func contentCallback(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let transfer = Transfer.at(context) else { return Int(CURL_READFUNC_ABORT) }
  return transfer.readContent(
    into: UnsafeMutableRawBufferPointer(start: bytes, count: size * count))
}

/// Rewinds the content when libcurl sends a request again, because its kept connection was closed.
private func seekContent(
  _ context: UnsafeMutableRawPointer?, _ offset: curl_off_t, _ origin: Int32
) -> Int32 {
  guard let transfer = Transfer.at(context), origin == SEEK_SET else { return CURL_SEEKFUNC_FAIL }
  transfer.sent = Int(offset)
  return CURL_SEEKFUNC_OK
}

private func openSocket(
  _ context: UnsafeMutableRawPointer?, _: curlsocktype,
  _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
  // For IPv6 the address is longer than the structure's last member, so it is read in place.
  guard let transfer = Transfer.at(context), let address,
    let offset = MemoryLayout<curl_sockaddr>.offset(of: \.addr)
  else { return CURL_SOCKET_BAD }
  let name = UnsafeRawPointer(address).advanced(by: offset).assumingMemoryBound(to: sockaddr.self)
  guard let peer = IPAddress(name), transfer.opens(peer) else { return CURL_SOCKET_BAD }
  let type = address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue)
  let opened = socket(address.pointee.family, type, address.pointee.protocol)
  if opened >= 0 { transfer.opened(opened) }
  return opened
}

private func closeSocket(_ context: UnsafeMutableRawPointer?, _ socket: curl_socket_t) -> Int32 {
  if let context {
    Unmanaged<IdleConnections>.fromOpaque(context).takeUnretainedValue().remove(socket)
  }
  return close(socket)
}

/// libcurl calls this before it looks up a host. Any result but 0 ends the transfer.
func startResolving(
  _: UnsafeMutableRawPointer?, _: UnsafeMutableRawPointer?, _ context: UnsafeMutableRawPointer?
) -> Int32 {
  Transfer.at(context)?.resolvesWithoutPin() == true ? 0 : 1
}

private func judgePeer(
  _ context: UnsafeMutableRawPointer?, _ peer: UnsafeMutablePointer<CChar>?,
  _: UnsafeMutablePointer<CChar>?, _: Int32, _: Int32
) -> Int32 {
  guard let transfer = Transfer.at(context), let peer else { return CURL_PREREQFUNC_ABORT }
  let sends = transfer.sends(to: String(cString: peer)) && transfer.isConnectionUnused()
  return sends ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

extension UnsafeBufferPointer<UInt8> {
  fileprivate init(raw: UnsafeMutablePointer<CChar>?, count: Int) {
    let bytes = UnsafeRawPointer(raw)?.assumingMemoryBound(to: UInt8.self)
    self.init(start: bytes, count: bytes == nil ? 0 : count)
  }
}

/// The last check of header fields before they are sent. The API has already refused the fields that are
/// dropped here.
enum RequestFields {
  /// Returns the client's fields that may be sent. Conditional fields and `Range` are dropped: only the
  /// fetcher's caller can handle a 206 or a 304.
  static func permitted(_ fields: [HeaderField]) -> [HeaderField] {
    fields.filter { field in
      let name = field.name.lowercased()
      return !refused.contains(name) && !conditional.contains(name) && isSound(field)
    }
  }

  /// Returns the fetch's own conditional fields for this URL.
  static func conditions(_ all: [FetchConditions], for url: SourceURL) -> [HeaderField] {
    sound(all.filter { $0.url == url }.flatMap(\.fields))
  }

  /// Returns the fields that are conditional and well-formed.
  static func sound(_ conditions: [HeaderField]) -> [HeaderField] {
    conditions.filter { conditional.contains($0.name.lowercased()) && isSound($0) }
  }

  /// Returns the fields that are well-formed.
  static func sendable(_ fields: [HeaderField]) -> [HeaderField] { fields.filter(isSound) }

  private static func isSound(_ field: HeaderField) -> Bool {
    isToken(field.name)
      && !field.value.utf8.contains(where: { $0 < 0x20 && $0 != 0x09 || $0 == 0x7F })
  }

  /// Whether a field with this lower-case name is present.
  static func contain(_ name: String, in fields: [HeaderField]) -> Bool {
    fields.contains { $0.name.lowercased() == name }
  }

  /// Fields that belong to the connection or to the message framing, which libcurl controls. Content codings
  /// are refused, because images are requested without one.
  private static let refused: Set<String> = [
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive",
    "proxy-authenticate",
    "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    "http2-settings",
  ]

  /// The conditional fields of RFC 9110 sections 13.1 and 14.2.
  private static let conditional: Set<String> = [
    "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range",
  ]

  /// Whether a name is a token of RFC 9110 section 5.6.2.
  private static func isToken(_ name: String) -> Bool {
    !name.isEmpty
      && name.utf8.allSatisfy { byte in
        0x30...0x39 ~= byte || 0x61...0x7A ~= byte | 0x20 && byte >= 0x41
          || "!#$%&'*+-.^_`|~".utf8.contains(byte)
      }
  }
}
