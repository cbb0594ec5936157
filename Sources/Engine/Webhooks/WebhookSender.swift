package import Jobs
internal import Logging
internal import Metrics
package import Settings
internal import Synchronization
internal import Waiting

/// Timing and limits of webhook messages.
package struct WebhookRules: Sendable {
  /// When a message that was not accepted is sent again.
  var schedule = WebhookSchedule.standard
  /// Time from the start of a try to the header of the response.
  var timeout: Duration = .seconds(15)
  /// Messages being sent at the same time; those of one owner at most half of them (``slots``).
  var atOnce = 64
  /// ``atOnce`` as shared by owners. Some slots are reserved for owners that use none, so that an owner whose receivers
  /// are all unreachable delays no other owner.
  var slots: ShareBounds { .keepingQuarter(of: atOnce, ofClient: ShareBounds(atOnce).half) }
  /// Messages being sent to one host at the same time, by all instances together.
  var perHost = 2
  /// Returns the secrets that sign an owner's messages, from the configuration at the time of sending.
  package var secrets: @Sendable (Owner) -> [WebhookSecret] = { _ in [] }

  package init() {}
}

extension WebhookRules {
  /// The configuration keys of these settings.
  package static let settings: [Setting<WebhookRules>] = [
    Setting(
      "webhooks.timeout", \.timeout, .duration(.milliseconds(1) ... .minutes(10)),
      "Maximum time of one attempt."),
    Setting(
      "webhooks.retry", \.schedule.waits, .list(.duration(.milliseconds(1) ... .days(30))),
      "How long to wait after each failed attempt, plus up to a quarter. If the attempt after the last wait fails, the message is dropped."
    ),
  ]
}

/// Sends webhook messages, and sends those again that were not accepted.
///
/// Input: a signal that there may be a message, and the clock. Output: requests, one task each, and their results in
/// the store. A slow receiver delays no other one, because at most `perHost` messages to one host are sent at once.
/// Each owner has a share of the slots. Runs on Swift's threads.
final class WebhookSender: Sendable {
  private struct State {
    var sending: [WebhookMessage.ID: Owner] = [:]
    var isStopped = false
  }

  private let store: any WebhookOutbox & InstanceEvents
  private let lease: Lease
  private let client: any WebhookClient
  private let rules: WebhookRules
  /// Returns the request body of a message.
  private let body: @Sendable (WebhookMessage) -> [UInt8]
  private let clock: WallClock
  private let log: Logger
  private let metrics = WebhookMetrics()
  private let state = Mutex(State())
  private let signal: Signal
  /// Interval for finding messages that other instances left or had no slots for.
  private static let round = Duration.seconds(5)

  /// - Parameter signal: sent when there may be a message to send.
  init(
    store: any WebhookOutbox & InstanceEvents, lease: Lease, client: any WebhookClient,
    rules: WebhookRules, body: @escaping @Sendable (WebhookMessage) -> [UInt8], signal: Signal,
    clock: @escaping WallClock, log: Logger
  ) {
    (self.store, self.lease, self.client, self.rules) = (store, lease, client, rules)
    (self.body, self.signal, self.clock, self.log) = (body, signal, clock, log)
  }

  /// Signals that there may be a message to send.
  func wake() { signal.send() }

  /// Sends messages until cancelled.
  func run() async {
    await withDiscardingTaskGroup { group in
      var arrivals = signal.arrivals.makeAsyncIterator()
      var look = ClaimRound()
      while !Task.isCancelled {
        look = await self.claimDue(after: look.host)
        for (message, instance) in look.taken {
          group.addTask { await self.send(message, for: instance) }
        }
        let next = look.next
        async let _: Void = wake(at: next)
        await arrivals.next()
      }
    }
  }

  /// Starts no more messages, and waits for those being sent.
  func stop(by deadline: ContinuousClock.Instant) async {
    state.withLock { $0.isStopped = true }
    while ContinuousClock.now < deadline, state.withLock({ !$0.sending.isEmpty }) {
      try? await Task.sleep(for: .milliseconds(20))
      if Task.isCancelled { return }
    }
  }

  /// Sets the gauges. Called before the metrics are read.
  func observe() async throws(StoreError) {
    metrics.observe(
      waiting: try await store.waitingMessages(), sending: state.withLock { $0.sending.count })
  }

  private func wake(at moment: Timestamp?) async {
    let far = Duration.seconds(3_600)
    // At most a minute, so that a changed clock has little effect.
    let due = moment.map { min(max(.zero, $0 - clock()), .seconds(60)) }
    let wait = min(due ?? far, store.isExclusive ? far : Self.round)
    do { try await Task.sleep(for: wait) } catch { return }
    wake()
  }
}

// Claiming due messages.
extension WebhookSender {
  private struct ClaimRound {
    var taken: [(WebhookMessage, Instance)] = []
    /// The host to continue after; nil: start with the first host.
    var host: String?
    /// When the next message is due, if all hosts were checked.
    var next: Timestamp?
  }

  /// Claims messages for the free slots: continues after the last host and goes around once.
  private func claimDue(after host: String?) async -> ClaimRound {
    var look = ClaimRound(host: host)
    var isRound = host == nil
    // The host at which an owner's slots ran out first in this search, or else in an earlier one.
    var (short, isNew) = (host, false)
    var wasUnreadable = false
    while let (sending, room) = openRoom {
      let (taken, instance): (ClaimedMessages, Instance)
      do throws(StoreError) {
        (taken, instance) = try await claim(room, inAdditionTo: sending, after: look.host)
      } catch {
        log.error("failed to claim webhook messages", metadata: ["error": "\(error)"])
        look.next = clock() + .seconds(1)
        return look
      }
      if taken.unreadable > 0 {
        wasUnreadable = true
        log.error(
          "skipping unreadable webhook messages", metadata: ["count": "\(taken.unreadable)"])
      }
      let new = state.withLock { state in
        // A message can be due again before the task of its last try has ended. That task then signals, and the next
        // search finds the message again.
        let new = taken.messages.filter { state.sending[$0.id] == nil }
        for message in new { state.sending[message.id] = message.owner }
        return new
      }
      look.taken += new.map { ($0, instance) }
      let full = capacity(usedBy: taken.messages.map(\.owner) + sending.values).full
      if !isNew {
        let last = new.last { full.contains($0.owner) }?.host
        (short, isNew) = (full.isEmpty ? nil : last ?? short, last != nil)
      }
      let hasMoved = taken.after != look.host
      (look.host, look.next) = (taken.after, taken.nextDue)
      // The remaining messages belong to owners that have their share. The end of one of their messages signals.
      guard hasMoved else { break }
      guard taken.after == nil else { continue }
      if isRound { break }
      isRound = true
    }
    // Continue there. Otherwise the owner's free slots would always go to its first hosts, and later hosts would never be served.
    if look.host == nil { look.host = short }
    // Messages behind the unreadable ones are claimed at once.
    if wasUnreadable { look.next = clock() }
    return look
  }

  /// Returns the capacity that each owner has left while messages of these owners are being sent.
  private func capacity(usedBy owners: some Sequence<Owner>) -> OwnerCapacity {
    var shares = FairShare<Owner>()
    for owner in owners { shares.acquireUnchecked(1, for: owner) }
    return OwnerCapacity(shares, within: rules.slots, at: clock())
  }

  private func claim(
    _ count: Int, inAdditionTo sending: [WebhookMessage.ID: Owner], after host: String?
  ) async throws(StoreError) -> (ClaimedMessages, Instance) {
    try await lease.withLease { instance throws(StoreError) in
      let request = MessageRequest(
        by: instance, sending: Set(sending.keys),
        owners: capacity(usedBy: sending.values), count: count, perHost: rules.perHost,
        after: host)
      return (try await store.claimMessages(request), instance)
    }
  }

  /// The messages being sent, and the number of free slots; nil if there is none.
  private var openRoom: ([WebhookMessage.ID: Owner], Int)? {
    state.withLock { state in
      let room = rules.atOnce - state.sending.count
      return state.isStopped || room <= 0 ? nil : (state.sending, room)
    }
  }
}

// Sending one message.
extension WebhookSender {
  private func send(_ message: WebhookMessage, for instance: Instance) async {
    if let answer = await post(message) {
      var told = message
      told.recordAnswer(answer, under: rules.schedule, dice: .random(in: 0...1))
      await saveResult(of: told, for: instance)
      logResult(of: told, answer)
    }
    state.withLock { $0.sending[message.id] = nil }
    wake()
  }

  /// - Returns: nil if the service stopped meanwhile.
  private func post(_ message: WebhookMessage) async -> WebhookAnswer? {
    let (moment, start) = (clock(), ContinuousClock.now)
    let body = body(message)
    let request = WebhookRequest(
      message.url, for: message.owner, body: body,
      fields: message.fields(
        for: body, at: moment, signedWith: rules.secrets(message.owner)),
      timeout: rules.timeout)
    do throws(FetchError) {
      let response = try await client.post(request)
      return WebhookAnswer(
        at: moment, time: ContinuousClock.now - start, status: response.status,
        retryAfter: response.retryAfter)
    } catch {
      guard error != .cancelled else { return nil }
      return WebhookAnswer(
        at: moment, time: ContinuousClock.now - start, status: nil, error: error)
    }
  }

  /// Saves the result of a try. Retries until the store accepts it, because the message would otherwise be sent again.
  private func saveResult(of message: WebhookMessage, for instance: Instance) async {
    var wait = Duration.milliseconds(50)
    while true {
      do throws(StoreError) { return try await store.saveResult(message, by: instance) } catch {
        log.error(
          "failed to save the result of a webhook message, retrying",
          metadata: ["message": "\(message.id)", "error": "\(error)"])
      }
      do { try await Task.sleep(for: wait) } catch { return }
      wait = min(wait * 2, .seconds(5))
    }
  }

  private func logResult(of message: WebhookMessage, _ answer: WebhookAnswer) {
    metrics.tried(message, answer)
    // Only the host: the rest of the URL may contain the receiver's secret.
    var metadata: Logger.Metadata = [
      "message": "\(message.id)", "type": "\(message.event.rawValue)",
      "host": "\(message.url.authority)", "tries": "\(message.tries.count)",
      "seconds": "\(answer.time.roundedSeconds)",
    ]
    if let status = answer.status { metadata["status"] = "\(status)" }
    if let error = answer.error { metadata["error"] = "\(error)" }
    switch message.state {
    case .delivered: log.info("webhook delivered", metadata: metadata)
    case .pending:
      metadata["next"] = message.nextTry.map { "\($0)" }
      log.info("webhook not accepted, will retry", metadata: metadata)
    case .failed: log.warning("webhook failed, giving up", metadata: metadata)
    }
  }
}

/// Checks whether an owner may have more undelivered messages. The answer of the store is reused for five seconds, so
/// that the jobs of a large batch do not ask the store each.
final class MessageQuota: Sendable {
  private struct CachedAnswer {
    let hasRoom: Bool
    let moment: ContinuousClock.Instant
  }

  private let store: any WebhookOutbox
  private let limit: Int
  private let cachedAnswers = Mutex<[Owner: CachedAnswer]>([:])
  private static let cacheTime = Duration.seconds(5)

  /// - Parameter limit: maximum of undelivered messages of one owner.
  init(store: any WebhookOutbox, limit: Int) { (self.store, self.limit) = (store, limit) }

  func hasRoom(for owner: Owner) async throws(StoreError) -> Bool {
    let known = cachedAnswers.withLock { looks in
      looks = looks.filter { .now - $0.value.moment < Self.cacheTime }
      return looks[owner]
    }
    if let known { return known.hasRoom }
    let hasRoom = try await store.waitingMessages(of: owner, upTo: limit) < limit
    cachedAnswers.withLock { $0[owner] = CachedAnswer(hasRoom: hasRoom, moment: .now) }
    return hasRoom
  }
}

/// The metrics of webhooks, as `GET /metrics` shows them.
struct WebhookMetrics: Sendable {
  private let waiting = Gauge(label: "imagefetch_webhooks_waiting")
  private let sending = Gauge(label: "imagefetch_webhooks_sending")
  private let time = Timer(label: "imagefetch_webhook_seconds")

  init() {
    // Initialized with zero, so that the first message shows as an increase.
    for outcome in ["delivered", "refused", "unreachable"] { tries(outcome).increment(by: 0) }
    for state in ["delivered", "failed"] { ended(state).increment(by: 0) }
  }

  func tried(_ message: WebhookMessage, _ answer: WebhookAnswer) {
    time.record(duration: answer.time)
    tries(answer.isDelivered ? "delivered" : answer.status == nil ? "unreachable" : "refused")
      .increment()
    if message.nextTry == nil { ended(message.state.rawValue).increment() }
  }

  func observe(waiting: Int, sending: Int) {
    self.waiting.record(waiting)
    self.sending.record(sending)
  }

  private func tries(_ outcome: String) -> Counter {
    Counter(label: "imagefetch_webhook_tries_total", dimensions: [("outcome", outcome)])
  }

  private func ended(_ state: String) -> Counter {
    Counter(label: "imagefetch_webhooks_ended_total", dimensions: [("state", state)])
  }
}
