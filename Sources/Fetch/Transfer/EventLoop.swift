internal import CCurl
internal import DequeModule
internal import Dispatch
internal import Executors
internal import Glibc
internal import Jobs
internal import Synchronization

/// The thread that drives all transfers. epoll reports which sockets are ready, and libcurl's multi handle
/// reads and writes them.
///
/// Other threads send commands through a locked queue and wake the thread with an eventfd.
final class EventLoop: @unchecked Sendable {  // `queue` is locked; only the thread uses the rest
  enum Command: Sendable {
    case start(TransferPlan)
    /// Continues a paused transfer.
    case resume(UInt64)
    case cancel(UInt64)
    /// Reads a small rest of the body without using it, to keep the connection.
    case discard(UInt64)
    case stop
  }

  private struct Queue {
    var commands: [Command] = []
    var isStopped = false
  }

  private let queue = Mutex(Queue())
  private let ended = DispatchSemaphore(value: 0)
  private let wakeUp: Int32
  let epoll: Int32
  let multi: UnsafeMutableRawPointer
  let idle: IdleConnections
  let settings: TransferSettings
  private let onOpenTransfers: @Sendable (Int) -> Void

  private let handles = HandlePool()
  private var transfers: [UInt64: Transfer] = [:]
  /// Transfers beyond `maxConnections`, and their order. They wait here, because libcurl 8.14 counts the time
  /// in its own queue toward the connect timeout.
  private var waiting: [UInt64: TransferPlan] = [:]
  private var order: Deque<UInt64> = []
  private var deadlines = DeadlineHeap()
  private var stopping = false
  /// Exchanges with new data for a waiting task, resumed at the end of each pass.
  var exchangesWithData: [TransferExchange] = []
  /// When libcurl must be called even if no socket is ready.
  var curlDeadline: ContinuousClock.Instant?

  init(
    settings: TransferSettings, onOpenTransfers: @escaping @Sendable (Int) -> Void
  ) throws(FetcherSetupError) {
    let idle = try IdleConnections()
    guard Self.curlIsReady, let multi = curl_multi_init() else { throw .curlUnavailable }
    let epoll = CCurl_newEpoll()
    let wakeUp = CCurl_newEvent()
    guard epoll >= 0, wakeUp >= 0 else {
      let code = errno
      curl_multi_cleanup(multi)
      for descriptor in [epoll, wakeUp] where descriptor >= 0 { close(descriptor) }
      throw .noDescriptor(errno: code)
    }
    self.multi = multi
    self.idle = idle
    self.epoll = epoll
    self.wakeUp = wakeUp
    self.settings = settings
    self.onOpenTransfers = onOpenTransfers
    CCurl_watch(epoll, wakeUp, CURL_POLL_IN)
    CCurl_watch(epoll, idle.epoll, CURL_POLL_IN)
    installMultiCallbacks()
    startThread(named: "fetch-loop") { self.run() }
  }

  deinit {
    curl_multi_cleanup(multi)
    close(wakeUp)
    close(epoll)
  }

  private static let curlIsReady = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

  /// Adds a command for the thread. Once the thread has stopped, a transfer to start ends as cancelled.
  func post(_ command: Command) {
    let (accepted, isFirst) = queue.withLock { queue in
      guard !queue.isStopped else { return (false, false) }
      queue.commands.append(command)
      return (true, queue.commands.count == 1)
    }
    if isFirst { eventfd_write(wakeUp, 1) }
    if !accepted, case .start(let plan) = command { plan.exchange.finish(.cancelled) }
  }

  /// Blocks until the thread has ended every transfer and stopped. Call it only after `post(.stop)`.
  func waitForEnd() {
    ended.wait()
    ended.signal()
  }
}

// The code that runs on the loop's thread.
extension EventLoop {
  private func run() {
    blockBrokenPipeSignal()
    withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 256) { events in
      while !stopping { runOnce(events) }
    }
    let left = queue.withLock { queue in
      queue.isStopped = true
      return queue.commands
    }
    for case .start(let plan) in left { plan.exchange.finish(.cancelled) }
    for plan in waiting.values { plan.exchange.finish(.cancelled) }
    waiting = [:]
    for transfer in Array(transfers.values) { remove(transfer, ending: .cancelled) }
    ended.signal()
  }

  private func runOnce(_ events: UnsafeMutableBufferPointer<epoll_event>) {
    let count = epoll_wait(epoll, events.baseAddress!, Int32(events.count), pollTimeout())
    var running: Int32 = 0
    for event in events.prefix(max(0, Int(count))) {
      switch event.data.fd {
      case wakeUp: performCommands()
      case idle.epoll: idle.shutDownActive()
      default:
        curl_multi_socket_action(multi, event.data.fd, Self.curlEvents(event.events), &running)
      }
    }
    let now = ContinuousClock.now
    if let due = curlDeadline, due <= now {
      curlDeadline = nil
      curl_multi_socket_action(multi, CURL_SOCKET_BAD, 0, &running)
    }
    finishDone()
    resumeWaiters()
    checkDeadlines(now)
  }

  /// Resumes waiting tasks once per pass: waking several tasks together needs fewer thread switches.
  private func resumeWaiters() {
    for exchange in exchangesWithData { exchange.resumeWaiter() }
    exchangesWithData.removeAll(keepingCapacity: true)
  }

  /// Returns the timeout of `epoll_wait` in milliseconds; -1 means no timeout.
  private func pollTimeout() -> Int32 {
    guard let next = [curlDeadline, deadlines.next].compactMap({ $0 }).min() else { return -1 }
    let left = ContinuousClock.now.duration(to: next)
    return left <= .zero ? 0 : Int32(min(left / .milliseconds(1) + 1, 60_000))
  }

  private static func curlEvents(_ events: UInt32) -> Int32 {
    var result: Int32 = 0
    if events & EPOLLIN.rawValue != 0 { result |= CURL_CSELECT_IN }
    if events & EPOLLOUT.rawValue != 0 { result |= CURL_CSELECT_OUT }
    if events & (EPOLLERR.rawValue | EPOLLHUP.rawValue) != 0 { result |= CURL_CSELECT_ERR }
    return result
  }

  private func performCommands() {
    var count: eventfd_t = 0
    eventfd_read(wakeUp, &count)
    let commands = queue.withLock { queue in
      let commands = queue.commands
      queue.commands = []
      return commands
    }
    for command in commands { perform(command) }
  }

  private func perform(_ command: Command) {
    switch command {
    case .start(let plan): start(plan)
    case .resume(let id):
      guard let transfer = transfers[id] else { return }
      if let error = transfer.resume() { remove(transfer, ending: error) }
    case .cancel(let id):
      waiting[id] = nil
      transfers[id].map { remove($0, ending: .cancelled) }
    case .discard(let id):
      guard let transfer = transfers[id] else { return }
      if let error = transfer.discard() {
        remove(transfer, ending: error)
      } else {
        schedule(transfer)
      }
    case .stop: stopping = true
    }
  }

  private func start(_ plan: TransferPlan) {
    guard !plan.exchange.isOver else { return }
    guard transfers.count < settings.maxConnections else {
      waiting[plan.exchange.id] = plan
      order.append(plan.exchange.id)
      deadlines.insert(plan.exchange.id, at: plan.deadline)
      return
    }
    guard
      let transfer = Transfer(
        plan, settings: settings, handles: handles, idle: idle, epoll: epoll),
      curl_multi_add_handle(multi, transfer.easy) == CURLM_OK
    else {
      plan.exchange.finish(
        .connectFailure(host: plan.route.host, detail: "the transfer could not be set up"))
      return
    }
    transfers[plan.exchange.id] = transfer
    schedule(transfer)
    onOpenTransfers(transfers.count)
  }

  /// Removes a transfer. The connection of an unfinished transfer is closed.
  private func remove(_ transfer: Transfer, ending error: FetchError?) {
    transfer.exchange.finish(error)
    if !transfer.isDone { transfer.forbidReuse() }
    curl_multi_remove_handle(multi, transfer.easy)
    transfers[transfer.exchange.id] = nil
    onOpenTransfers(transfers.count)
    startWaiting()
  }

  private func startWaiting() {
    while transfers.count < settings.maxConnections, let id = order.popFirst() {
      if let plan = waiting.removeValue(forKey: id) { start(plan) }
    }
  }

  private func finishDone() {
    var left: Int32 = 0
    while let message = curl_multi_info_read(multi, &left) {
      guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else {
        continue
      }
      let code = message.pointee.data.result
      guard let transfer = Transfer.of(easy: easy), !restart(transfer, after: code) else {
        continue
      }
      transfer.isDone = true
      remove(transfer, ending: transfer.error(for: code))
    }
  }

  /// Sends the request again on a new connection if the kept connection was unusable, or if the origin
  /// violated HTTP/2.
  /// - Returns: Whether the transfer was started again.
  private func restart(_ transfer: Transfer, after code: CURLcode) -> Bool {
    let fallsBack = transfer.mayFallBack(after: code)
    guard transfer.needsNewConnection || fallsBack else { return false }
    curl_multi_remove_handle(multi, transfer.easy)
    if fallsBack { transfer.fallBack() }
    transfer.prepareNewConnection()
    return curl_multi_add_handle(multi, transfer.easy) == CURLM_OK
  }

  private func checkDeadlines(_ now: ContinuousClock.Instant) {
    while let entry = deadlines.pop(dueBy: now) {
      if let plan = waiting.removeValue(forKey: entry.id) {
        plan.exchange.finish(.timeout(seconds: plan.timeout.roundedSeconds))
      }
      guard let transfer = transfers[entry.id], transfer.nextCheck == entry.at else { continue }
      if let error = transfer.overdue(at: now) {
        remove(transfer, ending: error)
      } else {
        schedule(transfer)
      }
    }
  }

  /// Adds the transfer's next check to the heap. Each transfer has one valid entry; older entries differ from
  /// `nextCheck` and are ignored.
  private func schedule(_ transfer: Transfer) {
    let moment = transfer.deadline(from: .now)
    transfer.nextCheck = moment
    deadlines.insert(transfer.exchange.id, at: moment)
  }

  /// Blocks SIGPIPE, so that writing to a connection closed by the origin returns an error.
  private func blockBrokenPipeSignal() {
    var signals = sigset_t()
    sigemptyset(&signals)
    sigaddset(&signals, SIGPIPE)
    pthread_sigmask(SIG_BLOCK, &signals, nil)
  }
}

/// libcurl calls these functions to request socket events and a timer. Both run on the loop's thread, within a call
/// into libcurl, and only record the request.
extension EventLoop {
  func installMultiCallbacks() {
    let context = Unmanaged.passUnretained(self).toOpaque()
    CCurl_multiSetSocketFunction(multi, watchSocket)
    CCurl_multiSetPointer(multi, CURLMOPT_SOCKETDATA, context)
    CCurl_multiSetTimerFunction(multi, setTimer)
    CCurl_multiSetPointer(multi, CURLMOPT_TIMERDATA, context)
    CCurl_multiSetLong(multi, CURLMOPT_MAXCONNECTS, settings.maxIdleConnections)
    CCurl_multiSetLong(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, settings.maxConnections)
    // One transfer per connection at a time, also with HTTP/2. A slow reader then does not block the streams
    // of other transfers, and cancelling a transfer closes its connection.
    CCurl_multiSetLong(multi, CURLMOPT_PIPELINING, Int(CURLPIPE_NOTHING))
  }
}

private func watchSocket(
  _ easy: UnsafeMutableRawPointer?, _ socket: curl_socket_t, _ what: Int32,
  _ context: UnsafeMutableRawPointer?, _: UnsafeMutableRawPointer?
) -> Int32 {
  guard let context else { return 0 }
  let loop = Unmanaged<EventLoop>.fromOpaque(context).takeUnretainedValue()
  if let transfer = Transfer.of(easy: easy) {
    if what == CURL_POLL_REMOVE {
      transfer.stopsWaiting(on: socket)
    } else {
      transfer.waits(for: what, on: socket)
    }
  } else {
    // The socket belongs to an internal handle of libcurl, not to a transfer.
    CCurl_watch(loop.epoll, socket, what)
  }
  return 0
}

private func setTimer(
  _: UnsafeMutableRawPointer?, _ milliseconds: Int, _ context: UnsafeMutableRawPointer?
) -> Int32 {
  guard let context else { return 0 }
  let loop = Unmanaged<EventLoop>.fromOpaque(context).takeUnretainedValue()
  loop.curlDeadline = milliseconds < 0 ? nil : .now + .milliseconds(milliseconds)
  return 0
}

/// libcurl easy handles that no transfer uses at the moment. Reusing a handle is cheaper than creating one.
/// Only the loop's thread uses it.
///
/// A reused handle keeps nothing of its last transfer: all options are reset, and TLS sessions are never
/// cached. An origin therefore cannot use a TLS session to link two requests.
final class HandlePool {
  /// The most handles kept, about 6 KB each.
  private static let capacity = 64

  private var handles: [UnsafeMutableRawPointer] = []

  deinit { for handle in handles { curl_easy_cleanup(handle) } }

  func makeHandle() -> UnsafeMutableRawPointer? { handles.popLast() ?? curl_easy_init() }

  /// - Parameter handle: A handle that has been removed from the multi handle.
  func recycle(_ handle: UnsafeMutableRawPointer) {
    guard handles.count < Self.capacity else { return curl_easy_cleanup(handle) }
    // `curl_easy_reset` does not reset the share.
    CCurl_setPointer(handle, CURLOPT_SHARE, nil)
    curl_easy_reset(handle)
    handles.append(handle)
  }
}

/// The times at which transfers are checked again, as a binary heap with the earliest first.
struct DeadlineHeap {
  typealias Entry = (at: ContinuousClock.Instant, id: UInt64)

  private var entries: [Entry] = []

  /// The earliest time.
  var next: ContinuousClock.Instant? { entries.first?.at }

  mutating func insert(_ id: UInt64, at moment: ContinuousClock.Instant) {
    entries.append((moment, id))
    var child = entries.count - 1
    while child > 0 {
      let parent = (child - 1) / 2
      guard entries[child].at < entries[parent].at else { return }
      entries.swapAt(child, parent)
      child = parent
    }
  }

  /// Removes and returns the earliest entry if it is due.
  mutating func pop(dueBy now: ContinuousClock.Instant) -> Entry? {
    guard let first = entries.first, first.at <= now else { return nil }
    entries.swapAt(0, entries.count - 1)
    entries.removeLast()
    var parent = 0
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < entries.count {
        if entries[child].at < entries[least].at { least = child }
      }
      guard least != parent else { return first }
      entries.swapAt(parent, least)
      parent = least
    }
  }
}

/// The sockets of the HTTP/1.1 connections that libcurl keeps for later requests. Only the loop's thread uses
/// it.
///
/// Data on an idle connection answers no request: it is excess body, a second response, or the end of the
/// connection. libcurl before 8.0 detects only the end, and would read other data as the response to the next
/// request. Such a connection is therefore shut down here, and libcurl then closes it.
final class IdleConnections {
  /// Readable when data arrived on an idle connection.
  let epoll: Int32

  /// - Throws: `.noDescriptor`.
  init() throws(FetcherSetupError) {
    epoll = CCurl_newEpoll()
    guard epoll >= 0 else { throw .noDescriptor(errno: errno) }
  }

  deinit { close(epoll) }

  /// Adds a new connection, or one whose transfer has ended.
  func insert(_ socket: Int32) { CCurl_watchIdle(epoll, socket) }

  /// Removes a connection that a transfer uses, or whose socket is about to be closed.
  ///
  /// Closing the socket does not remove it while a child process has a copy. epoll would then report events
  /// under the socket's number, which another connection may use by then.
  func remove(_ socket: Int32) { CCurl_unwatch(epoll, socket) }

  /// Shuts down the idle connections on which data arrived.
  /// - Returns: Whether there were any.
  @discardableResult
  func shutDownActive() -> Bool {
    withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 64) { events in
      var hasSpoken = false
      while true {
        let count = Int(epoll_wait(epoll, events.baseAddress!, Int32(events.count), 0))
        for event in events.prefix(max(0, count)) {
          remove(event.data.fd)
          Self.shutDown(event.data.fd)
        }
        hasSpoken = hasSpoken || count > 0
        if count < events.count { return hasSpoken }
      }
    }
  }

  /// Shuts the socket down first, so that the kernel resets the connection if more data arrives. Then empties
  /// it, because libcurl checks only its first byte.
  private static func shutDown(_ socket: Int32) {
    shutdown(socket, Int32(SHUT_RDWR))
    withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 1) { buffer in
      while recv(socket, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT)) > 0 {}
    }
  }
}
