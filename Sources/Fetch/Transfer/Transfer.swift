internal import CCurl
internal import Jobs

/// One libcurl transfer and what it needs for as long as it lives. The loop's thread alone touches
/// it.
final class Transfer {
  let easy: UnsafeMutableRawPointer
  let exchange: Exchange
  let plan: TransferPlan
  let settings: TransferSettings
  var headerSection: HeaderSection

  /// libcurl is through with it.
  var isDone = false
  /// Why we ended it ourselves, from within a callback.
  var failure: FetchError?
  /// When the first socket was opened: the connect timeout runs from here.
  var connectingSince: ContinuousClock.Instant?
  /// The request is on its way.
  var isConnected = false
  /// Whether the request's connection uses HTTP/2. False until it is connected.
  var speaksHTTP2 = false
  var hasHead = false
  /// Bytes of the request's content that libcurl has taken.
  var sent = 0
  private var heldBackSince: ContinuousClock.Instant?
  /// The longest time. Its sender looks for room, and repeats what found none, at intervals that grew with it (RFC 9293
  /// section 3.8): so much longer it may say nothing without having stalled.
  private var longestHold = Duration.zero
  var isHeldBack: Bool { heldBackSince != nil }
  var lastByte = ContinuousClock.now
  var firstByte: ContinuousClock.Instant?
  /// The connection that libcurl had kept was unfit: nothing was sent.
  var needsNewConnection = false
  /// HTTP/2 has failed: HTTP/1.1 takes its place.
  private var hasFallenBack = false
  /// The one valid moment in the loop's heap.
  var nextCheck: ContinuousClock.Instant?

  let idle: IdleConnections
  /// The loop's epoll descriptor.
  private let epoll: Int32
  /// The last socket that libcurl waited for; nil before.
  private(set) var socket: Int32?
  /// The events of `socket` that libcurl waits for.
  private var waitsFor = CURL_POLL_NONE
  private var discardUntil: ContinuousClock.Instant?
  private var discarded = 0
  private var lists: [UnsafeMutablePointer<curl_slist>] = []
  private let handles: SpareHandles
  private let names: UnsafeMutableRawPointer
  private let message: UnsafeMutablePointer<CChar>

  init?(
    _ plan: TransferPlan, settings: TransferSettings, handles: SpareHandles, idle: IdleConnections,
    epoll: Int32
  ) {
    guard let easy = handles.take() else { return nil }
    guard let names = curl_share_init() else {
      handles.giveBack(easy)
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
    handles.giveBack(easy)
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

  /// libcurl's own words for the last error.
  var detail: String { String(cString: message) }

  /// A name cache of its own for each transfer, filled before it starts: in the multi handle's
  /// shared one a pin could run out before its use, and libcurl would then ask the system behind
  /// our back.
  ///
  /// A pin that libcurl does not accept is no error to it, so ``startResolving`` ends a transfer that would look a name up.
  /// - Returns: whether the options were accepted; else the transfer must not start.
  private func pinNames() -> Bool {
    CCurl_shareNames(names) == CURLSHE_OK
      && CCurl_setPointer(easy, CURLOPT_SHARE, names) == CURLE_OK
      && CCurl_setResolverStartFunction(easy, startResolving) == CURLE_OK
      && set(CURLOPT_RESOLVE, plan.route.pins)
  }

  /// - Returns: whether libcurl has taken all of the lines.
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

  /// What remains of its connection shall not serve another transfer.
  func forbidReuse() { CCurl_setLong(easy, CURLOPT_FORBID_REUSE, 1) }

  /// libcurl waits for this socket, the last one its request's, to become readable, writable or either.
  func waits(for events: Int32, on socket: Int32) {
    (self.socket, waitsFor) = (socket, events)
    watchSocket()
    idle.remove(socket)
  }

  /// libcurl waits for this socket no longer: it is through, or held back.
  func stopsWaiting(on socket: Int32) {
    if socket == self.socket { waitsFor = CURL_POLL_NONE }
    CCurl_unwatch(epoll, socket)
    leave(socket)
  }

  /// Watches what libcurl waits for, except bytes while they are held back: libcurl 8.5 waits for the bytes of a paused
  /// transfer too, and keeps all that come in memory.
  private func watchSocket() {
    guard let socket, waitsFor != CURL_POLL_NONE else { return }
    CCurl_watch(epoll, socket, isHeldBack ? waitsFor & CURL_POLL_OUT : waitsFor)
  }

  /// Nothing more may come on its connection, which libcurl may keep. While held back more may; in HTTP/2 frames may at
  /// any time, and each tells whose it is.
  private func leave(_ socket: Int32) {
    guard !isHeldBack, !speaksHTTP2 else { return }
    idle.insert(socket)
  }

  /// It opened a socket, which isn't watched yet. What is there before it is may end without its being watched at all.
  func opened(_ socket: Int32) {
    (self.socket, waitsFor) = (nil, CURL_POLL_NONE)
    idle.insert(socket)
  }

  /// Once more from the start, on a connection that nobody has used.
  func takeNewConnection() {
    CCurl_setLong(easy, CURLOPT_FRESH_CONNECT, 1)
    needsNewConnection = false
    isConnected = false
    speaksHTTP2 = false
    failure = nil
    sent = 0
  }

  /// Whether the request may be sent again by HTTP/1.1: once, after an error of HTTP/2 before the response, unless it is
  /// one that must not be repeated (RFC 9110 section 9.2.2).
  func mayFallBack(after code: CURLcode) -> Bool {
    let isOfHTTP2 =
      switch code {
      case CURLE_HTTP2, CURLE_HTTP2_STREAM: true
      // libcurl 8.5 says no more of a stream that ended while its content was being sent.
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

  /// Nobody takes its bytes at the moment.
  func holdBack() {
    heldBackSince = .now
    watchSocket()
  }

  func resume() {
    let now = ContinuousClock.now
    lastByte = now
    longestHold = max(longestHold, heldBackSince?.duration(to: now) ?? .zero)
    heldBackSince = nil
    curl_easy_pause(easy, CURLPAUSE_CONT)
    watchSocket()
    // What it was held back with was the last: libcurl doesn't wait for its socket again.
    if let socket, waitsFor == CURL_POLL_NONE { leave(socket) }
  }

  /// Reads a little of an unwanted body, so that the connection can be used again.
  func discard() {
    discardUntil = .now + .milliseconds(100)
    if isHeldBack { resume() }
  }

  /// Whether unwanted bytes were taken; nil where bytes are wanted.
  func tookUnwanted(_ count: Int) -> Bool? {
    guard discardUntil != nil else { return nil }
    discarded += count
    return discarded <= 16_384
  }

  /// When to look again whether it is overdue, if nothing happens until then.
  func deadline(from now: ContinuousClock.Instant) -> ContinuousClock.Instant {
    let next: ContinuousClock.Instant
    if let discardUntil {
      next = discardUntil
    } else if !isConnected {
      // Looked at by then in any case: once it is connected, the stall timeout may be the shorter.
      next = min((connectingSince ?? now) + settings.connectTimeout, now + settings.stallTimeout)
    } else {
      // Held back by us, the origin can't be stalling.
      next = (isHeldBack ? now : lastByte + longestHold) + settings.stallTimeout
    }
    return min(next, plan.deadline)
  }

  /// What it failed to do in time; nil if it is within all its limits.
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
