internal import CCurl
internal import Jobs
internal import Logging

/// One libcurl transfer and the resources it needs. Only the loop's thread uses it.
final class Transfer {
  let easy: UnsafeMutableRawPointer
  let exchange: TransferExchange
  let plan: TransferPlan
  let settings: TransferSettings
  var headerSection: HeaderSection

  /// Whether libcurl has finished it.
  var isDone = false
  /// The error that a callback ended the transfer with.
  var failure: FetchError?
  /// When the first socket was opened. The connect timeout starts then.
  var connectingSince: ContinuousClock.Instant?
  /// Whether the connection is established and the request may be sent.
  var isConnected = false
  /// Whether the connection uses HTTP/2. False until it is connected.
  var speaksHTTP2 = false
  var hasHead = false
  /// The number of content bytes passed to libcurl.
  var sent = 0
  private var heldBackSince: ContinuousClock.Instant?
  /// The longest pause so far, which extends the stall timeout. After a pause, the sender retries at
  /// intervals that grew with it (RFC 9293 section 3.8), so it may be silent for as long again.
  private var longestPause = Duration.zero
  var isHeldBack: Bool { heldBackSince != nil }
  var lastByte = ContinuousClock.now
  var firstByte: ContinuousClock.Instant?
  /// The reused connection was unusable; the request was not sent.
  var needsNewConnection = false
  /// Whether HTTP/2 failed and the request was sent again with HTTP/1.1.
  private var hasFallenBack = false
  /// The time of this transfer's valid entry in the loop's heap.
  var nextCheck: ContinuousClock.Instant?

  let idle: IdleConnections
  /// The loop's epoll descriptor.
  private let epoll: Int32
  /// The last socket that libcurl waited for; nil before the first.
  private(set) var socket: Int32?
  /// The events that libcurl waits for on `socket`.
  private var waitsFor = CURL_POLL_NONE
  private var discardUntil: ContinuousClock.Instant?
  private var discarded = 0
  private var lists: [UnsafeMutablePointer<curl_slist>] = []
  private let handles: HandlePool
  private let names: UnsafeMutableRawPointer
  private let message: UnsafeMutablePointer<CChar>

  init?(
    _ plan: TransferPlan, settings: TransferSettings, handles: HandlePool, idle: IdleConnections,
    epoll: Int32
  ) {
    guard let easy = handles.makeHandle() else { return nil }
    guard let names = curl_share_init() else {
      handles.recycle(easy)
      return nil
    }
    self.easy = easy
    self.handles = handles
    self.names = names
    self.plan = plan
    self.settings = settings
    self.idle = idle
    self.epoll = epoll
    exchange = plan.exchange
    headerSection = HeaderSection(maxBytes: settings.maxHeaderBytes)
    message = .allocate(capacity: Int(CURL_ERROR_SIZE))
    message.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
    CCurl_setPointer(easy, CURLOPT_ERRORBUFFER, message)
    setOptions()
    installCallbacks()
    guard pinNames() else { return nil }
  }

  deinit {
    handles.recycle(easy)
    curl_share_cleanup(names)
    for list in lists { curl_slist_free_all(list) }
    message.deallocate()
  }

  static func of(easy: UnsafeMutableRawPointer?) -> Transfer? {
    var pointer: UnsafeMutableRawPointer?
    guard let easy else { return nil }
    CCurl_getPointer(easy, CURLINFO_PRIVATE, &pointer)
    return pointer.map { Unmanaged<Transfer>.fromOpaque($0).takeUnretainedValue() }
  }

  /// libcurl's message for the last error.
  var detail: String { String(cString: message) }

  /// Fills the transfer's own name cache before the transfer starts. In the multi handle's shared cache a pin
  /// could expire before its use, and libcurl would then ask the system's resolver.
  ///
  /// libcurl ignores a pin that it cannot parse. ``startResolving`` therefore ends a transfer that would look
  /// up a name.
  /// - Returns: Whether libcurl accepted the options. If not, the transfer must not start.
  private func pinNames() -> Bool {
    CCurl_shareNames(names) == CURLSHE_OK
      && CCurl_setPointer(easy, CURLOPT_SHARE, names) == CURLE_OK
      && CCurl_setResolverStartFunction(easy, startResolving) == CURLE_OK
      && set(CURLOPT_RESOLVE, plan.route.pins)
  }

  /// Sets a list option.
  /// - Returns: Whether libcurl accepted all lines.
  @discardableResult
  func set(_ option: CURLoption, _ lines: [String]) -> Bool {
    var list: UnsafeMutablePointer<curl_slist>?
    for line in lines {
      guard let longer = curl_slist_append(list, line) else {
        curl_slist_free_all(list)
        return false
      }
      list = longer
    }
    guard let list else { return true }
    lists.append(list)
    return CCurl_setList(easy, option, list) == CURLE_OK
  }

  /// Closes the connection after this transfer.
  func forbidReuse() { CCurl_setLong(easy, CURLOPT_FORBID_REUSE, 1) }

  /// Called when libcurl waits for a socket to become readable, writable or both. The last socket is the
  /// request's.
  func waits(for events: Int32, on socket: Int32) {
    (self.socket, waitsFor) = (socket, events)
    watchSocket()
    idle.remove(socket)
  }

  /// Called when libcurl stops waiting for a socket, because the transfer has ended or is paused.
  func stopsWaiting(on socket: Int32) {
    if socket == self.socket { waitsFor = CURL_POLL_NONE }
    CCurl_unwatch(epoll, socket)
    markIdle(socket)
  }

  /// Watches the events that libcurl waits for, but not for reading while the transfer is paused: libcurl 8.5
  /// reads paused transfers, too, and keeps their bytes in memory.
  private func watchSocket() {
    guard let socket, waitsFor != CURL_POLL_NONE else { return }
    CCurl_watch(epoll, socket, isHeldBack ? waitsFor & CURL_POLL_OUT : waitsFor)
  }

  /// Marks the connection as idle, since no more data is expected on it. A paused transfer's connection is not
  /// idle. Neither is an HTTP/2 connection, where frames may arrive at any time and carry their stream's number.
  ///
  /// libcurl has already closed a socket that did not connect. Another part of the process may have the same
  /// number by now.
  private func markIdle(_ socket: Int32) {
    guard isConnected, socket == self.socket, !isHeldBack, !speaksHTTP2 else { return }
    idle.insert(socket)
  }

  /// Called when libcurl opened a socket. It counts as idle from the start, because the transfer may end before
  /// the socket is ever watched.
  func opened(_ socket: Int32) {
    (self.socket, waitsFor, isConnected) = (nil, CURL_POLL_NONE, false)
    idle.insert(socket)
  }

  /// Prepares to send the request again on a new connection.
  func prepareNewConnection() {
    CCurl_setLong(easy, CURLOPT_FRESH_CONNECT, 1)
    needsNewConnection = false
    isConnected = false
    speaksHTTP2 = false
    failure = nil
    sent = 0
  }

  /// Whether the request may be sent again with HTTP/1.1. This happens at most once, after an HTTP/2 error
  /// before the response. A POST is not sent again, because it is not idempotent (RFC 9110 section 9.2.2).
  func mayFallBack(after code: CURLcode) -> Bool {
    let isOfHTTP2 =
      switch code {
      case CURLE_HTTP2, CURLE_HTTP2_STREAM: true
      // libcurl 8.5 returns this code for an HTTP/2 stream that ended while its content was being sent.
      case CURLE_SEND_ERROR: speaksHTTP2
      default: false
      }
    return isOfHTTP2 && !hasHead && failure == nil && !hasFallenBack && plan.method != .post
      && plan.deadline > .now
  }

  func fallBack() {
    hasFallenBack = true
    CCurl_setLong(easy, CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
    headerSection = HeaderSection(maxBytes: settings.maxHeaderBytes)
    (connectingSince, firstByte, lastByte) = (nil, nil, .now)
    message.update(repeating: 0, count: Int(CURL_ERROR_SIZE))
  }

  /// Pauses reading, because the exchange's buffer is full.
  func pause() {
    heldBackSince = .now
    watchSocket()
  }

  /// Continues reading. libcurl first delivers the bytes that it buffered during the pause. If a callback refuses
  /// them, libcurl only returns an error: it does not wait for the socket again and never reports the end.
  /// - Returns: The error that ends the transfer; nil if it continues.
  func resume() -> FetchError? {
    let now = ContinuousClock.now
    lastByte = now
    longestPause = max(longestPause, heldBackSince?.duration(to: now) ?? .zero)
    heldBackSince = nil
    switch curl_easy_pause(easy, CURLPAUSE_CONT) {
    case CURLE_OK: break
    // The transfer has just ended, and libcurl will report that.
    case CURLE_BAD_FUNCTION_ARGUMENT: return nil
    case let code: return error(for: code)
    }
    watchSocket()
    // All data had already been read, so libcurl does not wait for the socket again.
    if let socket, waitsFor == CURL_POLL_NONE { markIdle(socket) }
    return nil
  }

  /// Reads a little of an unwanted body, so that the connection can be used again.
  /// - Returns: The error that ends the transfer; nil if it continues.
  func discard() -> FetchError? {
    discardUntil = .now + .milliseconds(100)
    return isHeldBack ? resume() : nil
  }

  /// Counts discarded bytes. Returns whether to continue; nil if the body is not discarded.
  func countDiscarded(_ count: Int) -> Bool? {
    guard discardUntil != nil else { return nil }
    discarded += count
    return discarded <= 16_384
  }

  /// Returns when to check for a timeout next, if nothing happens until then.
  func deadline(from now: ContinuousClock.Instant) -> ContinuousClock.Instant {
    let next: ContinuousClock.Instant
    if let discardUntil {
      next = discardUntil
    } else if !isConnected {
      // Check again after the stall timeout at the latest: the transfer may be connected by then.
      next = min((connectingSince ?? now) + settings.connectTimeout, now + settings.stallTimeout)
    } else {
      // While this service pauses the transfer, the origin cannot be stalling.
      next = (isHeldBack ? now : lastByte + longestPause) + settings.stallTimeout
    }
    return min(next, plan.deadline)
  }

  /// Returns the timeout that has expired, or nil if none has.
  func overdue(at now: ContinuousClock.Instant) -> FetchError? {
    if plan.deadline <= now { return .timeout(seconds: plan.timeout.roundedSeconds) }
    if deadline(from: now) > now { return nil }
    if discardUntil != nil { return .cancelled }
    if !isConnected { return connectTimedOut }
    return .stalled(seconds: settings.stallTimeout.roundedSeconds)
  }

  var connectTimedOut: FetchError {
    let seconds = settings.connectTimeout.roundedSeconds
    return .connectFailure(host: plan.route.host, detail: "no connection within \(seconds) s")
  }
}

/// Converts the result of a transfer to the service's own types.
extension Transfer {
  func makeHead() -> ResponseHead {
    ResponseHead(
      status: headerSection.status, fields: headerSection.fields,
      contentLength: headerSection.length.bytes, timings: timings())
  }

  /// Returns the error for libcurl's result code, or nil if the response is complete.
  func error(for code: CURLcode) -> FetchError? {
    if let failure { return failure }
    let host = plan.route.host
    switch code {
    case CURLE_SSL_CONNECT_ERROR where brokeOff:
      return .connectFailure(host: host, detail: words(for: code))
    case CURLE_OK:
      return hasHead ? nil : .noResponse(host: host, detail: "no response")
    case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM,
      CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR,
      CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_PINNEDPUBKEYNOTMATCH, CURLE_SSL_CRL_BADFILE:
      return .tlsFailure(host: host, detail: words(for: code))
    case CURLE_OPERATION_TIMEDOUT where !isConnected:
      return connectTimedOut
    // A header line is longer than libcurl allows. libcurl 8.6 and later return CURLE_TOO_LARGE (100).
    case CURLE_OUT_OF_MEMORY where isConnected && !hasHead, CURLcode(100) where !hasHead:
      return .headerTooLarge(.bytes(settings.maxHeaderBytes))
    // Content codings are not decoded here, so the error is about a transfer coding. Newer versions of
    // libcurl refuse these.
    case CURLE_BAD_CONTENT_ENCODING where !hasHead: return unaskedCoding
    default:
      guard hasHead else {
        let words = words(for: code)
        return isConnected
          ? .noResponse(host: host, detail: words) : .connectFailure(host: host, detail: words)
      }
      return .truncated(received: exchange.received, expected: headerSection.length.bytes)
    }
  }

  var unaskedCoding: FetchError {
    .noResponse(host: plan.route.host, detail: "an unrequested transfer coding")
  }

  /// Whether the connection broke during the TLS handshake without a TLS alert. That does not prove that the
  /// certificate is bad.
  private var brokeOff: Bool {
    ["Recv failure", "Send failure", "SSL_ERROR_SYSCALL", "Connection reset", "unexpected eof"]
      .contains { detail.contains($0) }
  }

  /// Returns the error detail for the client. For a transfer through the proxy, libcurl's own message may
  /// name the proxy, so it is only logged.
  private func words(for code: CURLcode) -> String {
    let general = String(cString: curl_easy_strerror(code))
    guard plan.route.proxy != nil else { return detail.isEmpty ? general : detail }
    Logger(label: "imagefetch.fetch").debug(
      "transfer through the proxy failed",
      metadata: ["host": "\(plan.route.host)", "why": "\(detail.isEmpty ? general : detail)"])
    var status = 0
    CCurl_getLong(easy, CURLINFO_HTTP_CONNECTCODE, &status)
    guard status < 300 else { return ProxyRoute.refused(status) }
    switch code {
    case CURLE_COULDNT_CONNECT, CURLE_COULDNT_RESOLVE_PROXY: return ProxyRoute.unreachable
    default: return general
    }
  }

  private func timings() -> TransferTimings {
    var timings = TransferTimings()
    timings.firstByte = plan.started.duration(to: firstByte ?? .now)
    var opened = 0
    CCurl_getLong(easy, CURLINFO_NUM_CONNECTS, &opened)
    guard opened > 0 else { return timings }
    timings.dns = plan.route.nameTime
    let (named, connected) = (time(CURLINFO_NAMELOOKUP_TIME_T), time(CURLINFO_CONNECT_TIME_T))
    let secured = time(CURLINFO_APPCONNECT_TIME_T)
    timings.connect = .microseconds(max(0, connected - named))
    if secured > 0 { timings.tls = .microseconds(max(0, secured - connected)) }
    return timings
  }

  private func time(_ info: CURLINFO) -> Int {
    var microseconds: curl_off_t = 0
    CCurl_getOffset(easy, info, &microseconds)
    return microseconds
  }
}

extension HeaderSection {
  /// Whether the response has a transfer coding that was not requested (RFC 9112 section 7.4). The service
  /// does not decode it.
  var hasUnaskedCoding: Bool {
    values(of: "transfer-encoding").contains { value in
      value.lowercased().split { ", \t".contains($0) }.contains {
        $0 != "chunked" && $0 != "identity"
      }
    }
  }
}
