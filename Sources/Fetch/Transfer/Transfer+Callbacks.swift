internal import CCurl
internal import Glibc
internal import Jobs

/// What libcurl calls on the loop's thread during a transfer: nothing here blocks or calls it back.
extension Transfer {
  func installCallbacks() {
    let context = Unmanaged.passUnretained(self).toOpaque()
    CCurl_setPointer(easy, CURLOPT_PRIVATE, context)
    CCurl_setWriteFunction(easy, CURLOPT_WRITEFUNCTION, takeBody)
    CCurl_setPointer(easy, CURLOPT_WRITEDATA, context)
    CCurl_setWriteFunction(easy, CURLOPT_HEADERFUNCTION, takeHeaderLine)
    CCurl_setPointer(easy, CURLOPT_HEADERDATA, context)
    if plan.content != nil {
      CCurl_setReadFunction(easy, giveContent)
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

  /// - Returns: the bytes taken, or what makes libcurl wait or stop.
  fileprivate func take(_ body: UnsafeBufferPointer<UInt8>) -> Int {
    lastByte = .now
    if let goesOn = tookUnwanted(body.count) { return goesOn ? body.count : Self.stop }
    // A connection counts as idle until its socket is watched, and held back it isn't; by then libcurl has read at
    // most a hundred times the size of its buffer, which is 6.6 MB.
    switch exchange.append(body, mayHoldBack: socket != nil) {
    case .taken: return body.count
    case .holdBack:
      holdBack()
      return Int(CURL_WRITEFUNC_PAUSE)
    case .refused: return Self.stop
    case .tooMany(let limit):
      failure = .tooLarge(limit: limit)
      return Self.stop
    }
  }

  /// Gives the next piece of the request's content.
  /// - Returns: how many bytes; 0 after the last; ``abort`` where they can't be read.
  fileprivate func give(into buffer: UnsafeMutableRawBufferPointer) -> Int {
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

  fileprivate func take(headerLine line: UnsafeBufferPointer<UInt8>) -> Int {
    let now = ContinuousClock.now
    lastByte = now
    firstByte = firstByte ?? now
    // After the body: a trailer section, which carries nothing for us.
    if hasHead { return line.count }
    switch headerSection.take(line) {
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

  /// The final response's status, as libcurl has read it.
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

  // Neither a count of bytes nor a pause: libcurl ends the transfer.
  private static let stop = 0xFFFF_FFFF

  /// libcurl did not find the host among the pins. Only an IPv6 address is not pinned: libcurl reads it without a lookup.
  fileprivate func resolvesWithoutPin() -> Bool {
    if plan.route.hasNoName { return true }
    failure = .connectFailure(host: plan.route.host, detail: "its name could not be pinned")
    return false
  }

  /// The last look before the connection: only an address that was judged and pinned gets a socket.
  fileprivate func opens(_ address: IPAddress) -> Bool {
    connectingSince = connectingSince ?? .now
    if let proxy = plan.route.proxy { return proxy.addresses.contains(address) }
    if let reason = plan.route.policy.objection(to: address) {
      failure = .blocked(target: plan.route.host, reason)
      return false
    }
    return plan.route.addresses.contains(address)
  }

  /// The last look before the request, which also sees the peer of a connection used again.
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
  /// Whether nothing has come on the connection since its last response ended: it would be read as the next one. The
  /// connection that libcurl chose is one of the idle ones; which, it doesn't tell, so any of them that spoke will do.
  fileprivate func isUnspoken() -> Bool {
    let isNew = connectingSince != nil
    let hasUnread = !speaksHTTP2 && CCurl_hasUnreadPlaintext(easy) != 0
    needsNewConnection = !isNew && (idle.shutDownSpoken() || hasUnread)
    return !needsNewConnection
  }
}

private func takeBody(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let transfer = Transfer.at(context) else { return 0 }
  return transfer.take(UnsafeBufferPointer(raw: bytes, count: size * count))
}

private func takeHeaderLine(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let transfer = Transfer.at(context) else { return 0 }
  return transfer.take(headerLine: UnsafeBufferPointer(raw: bytes, count: size * count))
}

private func giveContent(
  _ bytes: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int,
  _ context: UnsafeMutableRawPointer?
) -> Int {
  guard let transfer = Transfer.at(context) else { return Int(CURL_READFUNC_ABORT) }
  return transfer.give(into: UnsafeMutableRawBufferPointer(start: bytes, count: size * count))
}

/// A request that found its connection closed is sent again from its start.
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
  // The structure's last member is longer than declared for IPv6, so it is read where it lies.
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

/// Called before libcurl looks a host up; anything but 0 ends the transfer.
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
  let sends = transfer.sends(to: String(cString: peer)) && transfer.isUnspoken()
  return sends ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

extension UnsafeBufferPointer<UInt8> {
  fileprivate init(raw: UnsafeMutablePointer<CChar>?, count: Int) {
    let bytes = UnsafeRawPointer(raw)?.assumingMemoryBound(to: UInt8.self)
    self.init(start: bytes, count: bytes == nil ? 0 : count)
  }
}
