internal import CCurl
internal import Glibc
internal import Jobs

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
