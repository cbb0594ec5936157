public import Jobs
internal import Logging
internal import Synchronization

/// How messages are sent.
public struct WebhookRules: Sendable {
  /// When one that was not taken is sent again.
  public var schedule = WebhookSchedule.standard
  /// From a try's beginning to the answer's header section.
  public var timeout: Duration = .seconds(15)
  /// Messages on their way at the same time, of one owner at most half as many (``MessageShares``).
  public var atOnce = 64
  /// To one host, from all instances.
  public var perHost = 2
  /// What an owner's messages are signed with: those of the configuration that holds when they are sent.
  public var secrets: @Sendable (Owner) -> [WebhookSecret] = { _ in [] }

  /// The usual rules; nothing is signed.
  public init() {}
}

/// Sends messages, and sends again those that were not taken.
///
/// In comes a ring when there may be one, and the clock; out go requests, one task each, and what came of them into the
/// store. What one receiver does holds up nobody else: the store hands over no more than two messages of a host at once, and
/// of an owner no more than its share. Runs on Swift's threads.
final class WebhookSender: Sendable {
  private struct State {
    var sending: [WebhookMessage.ID: Owner] = [:]
    var isStopped = false
  }

  private let store: any WebhookOutbox & StoreNews
  private let lease: Lease
  private let client: any WebhookClient
  private let rules: WebhookRules
  /// What a message says.
  private let body: @Sendable (WebhookMessage) -> [UInt8]
  private let clock: WallClock
  private let log: Logger
  private let metrics = WebhookMetrics()
  private let state = Mutex(State())
  private let bell = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
  /// What other instances left, or had no room for, is looked for so often.
  private static let round = Duration.seconds(5)

  init(
    store: any WebhookOutbox & StoreNews, lease: Lease, client: any WebhookClient,
    rules: WebhookRules, body: @escaping @Sendable (WebhookMessage) -> [UInt8],
    clock: @escaping WallClock, log: Logger
  ) {
    (self.store, self.lease, self.client, self.rules) = (store, lease, client, rules)
    (self.body, self.clock, self.log) = (body, clock, log)
  }

  /// There may be something to send.
  func ring() { bell.continuation.yield() }

  /// Sends until cancelled.
  func run() async {
    await withDiscardingTaskGroup { group in
      var rings = bell.stream.makeAsyncIterator()
      var look = Look()
      while !Task.isCancelled {
        look = await self.look(after: look.host)
        for (message, instance) in look.taken {
          group.addTask { await self.send(message, for: instance) }
        }
        let next = look.next
        async let _: Void = ring(at: next)
        await rings.next()
      }
    }
  }

  /// Takes no more, and waits for what is on its way.
  func stop(by deadline: ContinuousClock.Instant) async {
    state.withLock { $0.isStopped = true }
    while ContinuousClock.now < deadline, state.withLock({ !$0.sending.isEmpty }) {
      try? await Task.sleep(for: .milliseconds(20))
      if Task.isCancelled { return }
    }
  }

  /// Sets the gauges: called when somebody is about to read them.
  func observe() async throws(StoreError) {
    metrics.observe(
      waiting: try await store.waitingMessages(), sending: state.withLock { $0.sending.count })
  }

  private func ring(at moment: Timestamp?) async {
    let far = Duration.seconds(3_600)
    // Not so late that a changed clock matters.
    let due = moment.map { min(max(.zero, $0 - clock()), .seconds(60)) }
    let wait = min(due ?? far, store.isExclusive ? far : Self.round)
    do { try await Task.sleep(for: wait) } catch { return }
    ring()
  }
}

// What is due.
extension WebhookSender {
  private struct Look {
    var taken: [(WebhookMessage, Instance)] = []
    /// Where the next one goes on; nil: from the first host on.
    var host: String?
    /// When the next message will be due, where all hosts were looked at.
    var next: Timestamp?
  }

  /// Takes what there is room for, going on where the last look had come to, and once around.
  private func look(after host: String?) async -> Look {
    var look = Look(host: host)
    var isRound = host == nil
    // Where an owner's places ran out, first in this look, or else before it.
    var (short, isNew) = (host, false)
    var wasUnreadable = false
    while let (sending, room) = openRoom {
      let (taken, instance): (TakenMessages, Instance)
      do throws(StoreError) {
        (taken, instance) = try await take(room, besides: sending, after: look.host)
      } catch {
        log.error("messages can't be looked for", metadata: ["error": "\(error)"])
        look.next = clock() + .seconds(1)
        return look
      }
      if taken.unreadable > 0 {
        wasUnreadable = true
        log.error(
          "messages can't be read and are not sent", metadata: ["count": "\(taken.unreadable)"])
      }
      let new = state.withLock { state in
        // One that was asked for during its try may be due before that try's task is over, which then rings: the next look
        // has it again.
        let new = taken.messages.filter { state.sending[$0.id] == nil }
        for message in new { state.sending[message.id] = message.owner }
        return new
      }
      look.taken += new.map { ($0, instance) }
      let full = full(with: taken.messages.map(\.owner) + sending.values)
      if !isNew {
        let last = new.last { full.contains($0.owner) }?.host
        (short, isNew) = (full.isEmpty ? nil : last ?? short, last != nil)
      }
      let hasMoved = taken.after != look.host
      (look.host, look.next) = (taken.after, taken.nextDue)
      // Whoever waits has its share: the end of one of theirs rings.
      guard hasMoved else { break }
      guard taken.after == nil else { continue }
      if isRound { break }
      isRound = true
    }
    // Else the places that it gets back would always be its first hosts', however many wait behind them.
    if look.host == nil { look.host = short }
    // What was behind those is looked for at once.
    if wasUnreadable { look.next = clock() }
    return look
  }

  /// Owners that have their share, where messages of these are on their way.
  private func full(with owners: [Owner]) -> Set<Owner> {
    let free = rules.atOnce - owners.count
    let byOwner = owners.reduce(into: [Owner: Int]()) { $0[$1, default: 0] += 1 }
    return Set(byOwner.filter { $0.value >= free }.keys)
  }

  private func take(
    _ count: Int, besides sending: [WebhookMessage.ID: Owner], after host: String?
  ) async throws(StoreError) -> (TakenMessages, Instance) {
    try await lease.holding { instance throws(StoreError) in
      let request = MessageRequest(
        by: instance, sending: Set(sending.keys),
        byOwner: sending.values.reduce(into: [:]) { $0[$1, default: 0] += 1 },
        count: count, perHost: rules.perHost, after: host)
      return (try await store.takeMessages(request), instance)
    }
  }

  /// What is on its way, and for how many more there is room; nil: for none.
  private var openRoom: ([WebhookMessage.ID: Owner], Int)? {
    state.withLock { state in
      let room = rules.atOnce - state.sending.count
      return state.isStopped || room <= 0 ? nil : (state.sending, room)
    }
  }
}

// One message.
extension WebhookSender {
  private func send(_ message: WebhookMessage, for instance: Instance) async {
    if let answer = await post(message) {
      var told = message
      told.note(answer, under: rules.schedule, dice: .random(in: 0...1))
      await settle(told, for: instance)
      tell(told, answer)
    }
    state.withLock { $0.sending[message.id] = nil }
    ring()
  }

  /// - Returns: nil where the service stops meanwhile.
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

  /// Writes down what came of it, however long the store is away: it would else be sent once more.
  private func settle(_ message: WebhookMessage, for instance: Instance) async {
    var wait = Duration.milliseconds(50)
    while true {
      do throws(StoreError) { return try await store.settle(message, by: instance) } catch {
        log.error(
          "what came of a message can't be written down",
          metadata: ["message": "\(message.id)", "error": "\(error)"])
      }
      do { try await Task.sleep(for: wait) } catch { return }
      wait = min(wait * 2, .seconds(5))
    }
  }

  private func tell(_ message: WebhookMessage, _ answer: WebhookAnswer) {
    metrics.tried(message, answer)
    // No more of the URL: what else is in it may be the receiver's secret.
    var metadata: Logger.Metadata = [
      "message": "\(message.id)", "type": "\(message.event.rawValue)",
      "host": "\(message.url.authority)", "tries": "\(message.tries.count)",
      "seconds": "\(answer.time.toldInSeconds)",
    ]
    if let status = answer.status { metadata["status"] = "\(status)" }
    if let error = answer.error { metadata["error"] = "\(error)" }
    switch message.state {
    case .delivered: log.info("webhook delivered", metadata: metadata)
    case .pending:
      metadata["next"] = message.nextTry.map { "\($0)" }
      log.info("webhook not taken", metadata: metadata)
    case .failed: log.warning("webhook given up", metadata: metadata)
    }
  }
}

/// Tells the sender of messages, which is made after those who ring.
final class WebhookBell: Sendable {
  private let sender = Mutex<WebhookSender?>(nil)

  func connect(_ sender: WebhookSender?) { self.sender.withLock { $0 = sender } }

  func ring() { sender.withLock { $0 }?.ring() }
}
