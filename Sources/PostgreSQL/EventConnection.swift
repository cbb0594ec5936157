internal import Executors
internal import Glibc
internal import Jobs
internal import SQL
internal import Synchronization

/// Exchanges events between processes that share the database, by LISTEN and NOTIFY, on its own
/// connection and thread.
///
/// NOTIFY holds a lock of the whole server until its transaction commits, so it is never part of
/// another transaction. Events within 20 ms are sent together. Nothing is sent while there is no
/// other instance.
final class EventConnection: EventChannel {
  private struct Pending {
    var news: [String] = []
    /// The instances of this process.
    var own: Set<Int64> = []
    /// Whether events were discarded because too many were waiting.
    var overflowed = false
    var isClosed = false
    var hasEnded = false
    var ends: [CheckedContinuation<Void, Never>] = []
  }

  private let pending = Mutex(Pending())
  private let wake: WakePipe
  private let exchange: InstanceEventBus
  /// Distinguishes this process's notifications from those of others.
  private let name = String(UInt64.random(in: .min ... .max), radix: 36)
  private static let channel = "imagefetch"
  /// The maximum number of waiting events. If there are more, the others receive `.lost` and query
  /// the state themselves.
  private static let most = 20_000
  /// The maximum payload in bytes; the server accepts less than 8,000.
  private static let payload = 7_900
  private static let pause = Duration.milliseconds(20)
  /// The interval between two checks that the connection still works. Each is a heartbeat: see
  /// ``InstanceEvent/heartbeat(until:)``.
  private static let checkInterval = Duration.seconds(1)

  init(_ settings: Session.Settings, _ exchange: InstanceEventBus) {
    self.exchange = exchange
    wake = WakePipe()
    startThread(named: "pg-news") { [self] in
      run(Session(settings, named: "pg-news"))
      let ends = pending.withLock { pending in
        pending.hasEnded = true
        return pending.ends
      }
      for continuation in ends { continuation.resume() }
    }
  }

  /// Adds an instance of this process.
  func addInstance(_ instance: Instance) {
    pending.withLock { _ = $0.own.insert(instance.number) }
  }

  /// Queues an event for the other processes and returns at once.
  func publish(_ news: InstanceEvent) {
    guard let text = EventText.encode(news) else { return }
    let isFirst = pending.withLock { pending in
      guard !pending.isClosed else { return false }
      if pending.news.count < Self.most {
        pending.news.append(text)
      } else {
        pending.overflowed = true
      }
      return pending.news.count == 1
    }
    if isFirst { wake.signal() }
  }

  func close() async {
    pending.withLock { $0.isClosed = true }
    wake.signal()
    await withCheckedContinuation { continuation in
      let hasEnded = pending.withLock { pending in
        if !pending.hasEnded { pending.ends.append(continuation) }
        return pending.hasEnded
      }
      if hasEnded { continuation.resume() }
    }
  }

  private var isClosed: Bool { pending.withLock(\.isClosed) }

  private func run(_ session: Session) {
    var isListening = false
    var asked = ContinuousClock.now
    while !isClosed {
      do {
        guard let connection = try session.connected() as? PostgresConnection else { return }
        if !isListening || ContinuousClock.now - asked >= Self.checkInterval {
          asked = .now
          // A repeated LISTEN changes nothing, but it shows whether the connection still works.
          try connection.run(
            "SET synchronous_commit = off; LISTEN \(Self.channel)",
            by: .now + session.settings.timeout)
          try receive(from: connection)
          // Events before the first LISTEN were not received.
          exchange.publish(isListening ? .heartbeat(until: asked) : .lost, from: .none)
          isListening = true
        }
        try receive(from: connection)
        // Events queued while there was no connection have consumed their signal, so send now.
        try send(session)
        // libpq may have read notifications together with the server's answer, so the socket no
        // longer signals them.
        try receive(from: connection)
        let left = Self.checkInterval - (ContinuousClock.now - asked)
        wake.wait(or: connection.socket, for: max(.zero, left))
      } catch {
        isListening = false
        session.disconnect()
        if !isClosed { wake.wait(or: nil, for: .milliseconds(500)) }
      }
    }
    // Sends the last events of an instance that stops.
    do { try send(session) } catch { session.disconnect() }
  }

  /// Sends the waiting events, then pauses, so that the next ones are sent together.
  private func send(_ session: Session) throws {
    let (news, own) = pending.withLock { pending in
      defer { (pending.news, pending.overflowed) = ([], false) }
      return (pending.news + (pending.overflowed ? [EventText.lost] : []), Array(pending.own))
    }
    guard !news.isEmpty else { return }
    let begun = ContinuousClock.now
    var unsent = news[...]
    do { try send(&unsent, besides: own, session) } catch {
      requeueUnsent(unsent, after: error)
      throw error
    }
    let left = Self.pause - (.now - begun)
    if left > .zero, !isClosed { usleep(UInt32(left.inMilliseconds * 1_000)) }
  }

  /// Puts events that may not have been sent back to the front; receiving one twice is harmless. If
  /// there is no room or the server rejects them, the others receive `.lost` and query the state
  /// themselves.
  private func requeueUnsent(_ news: ArraySlice<String>, after error: any Error) {
    pending.withLock { pending in
      switch error {
      case Fault.refused: pending.overflowed = true
      case _ where news.count + pending.news.count > Self.most: pending.overflowed = true
      // Another instance may have changed this setting since, so the old event must not be
      // repeated.
      case _ where news.contains { $0.first == "n" }: pending.overflowed = true
      default: pending.news.insert(contentsOf: news, at: 0)
      }
    }
  }

  /// On return or error, `news` contains the events that may not have been sent.
  private func send(
    _ news: inout ArraySlice<String>, besides own: [Int64], _ session: Session
  ) throws {
    while !news.isEmpty {
      var (payload, rest) = (name, news)
      while let next = rest.first {
        // An event too large for any payload is replaced by `.lost`.
        let text = name.utf8.count + next.utf8.count < Self.payload ? next : EventText.lost
        guard payload.utf8.count + text.utf8.count < Self.payload else { break }
        payload += "\n" + text
        rest.removeFirst()
      }
      try session.read { transaction in
        _ = try transaction.execute(
          """
          SELECT pg_notify('\(Self.channel)', convert_from($1, 'UTF8')) WHERE EXISTS (SELECT 1 FROM instances
            WHERE NOT ended AND number <> ALL ($2))
          """, [.bytes(Array(payload.utf8)), .ints(own)])
      }
      news = rest
    }
  }

  /// Sends one event in the caller's transaction, and returns the other instances. One whose lease has expired counts
  /// too, until a recovery ends it, because it may still renew its lease. After the commit, each connection that
  /// listens receives the event before the answer to a later statement.
  func announce(
    _ event: InstanceEvent, from instance: Instance, in transaction: Transaction
  ) throws -> Set<Instance> {
    let text = EventText.encode(event) ?? EventText.lost
    let others = try transaction.execute(
      "SELECT number FROM instances WHERE NOT ended AND number <> $1", [.int(instance.number)])
    let numbers = others.all.compactMap { others.int($0, 0) }
    guard !numbers.isEmpty else { return [] }
    _ = try transaction.execute(
      "SELECT pg_notify('\(Self.channel)', convert_from($1, 'UTF8'))",
      [.bytes(Array("\(name)\n\(text)".utf8))])
    return Set(numbers.map { Instance(number: $0) })
  }

  private func receive(from connection: PostgresConnection) throws {
    for payload in try connection.notifications() { deliver(payload) }
  }

  private func deliver(_ payload: String) {
    var lines = payload.split(separator: "\n")
    guard !lines.isEmpty, lines.removeFirst() != name else { return }
    for line in lines {
      #if DEBUG
        if PlantedFault.droppedEvents.isPlanted, line.first == "c" { continue }
      #endif
      if let news = EventText.decode(line) { exchange.publish(news, from: .none) }
    }
  }
}

/// The text form of events: one letter, followed by ids or values.
enum EventText {
  static let lost = "l"

  /// Returns `nil` for events that other processes do not need.
  static func encode(_ news: InstanceEvent) -> String? {
    switch news {
    case .queued: return "q"
    case .equalQueued(let request): return "e\(ImageDigest(bytes: request.bytes)?.hex ?? "")"
    case .originPaused(let origin, let time): return "o\(time.inMilliseconds) \(origin)"
    case .changed(let id): return "c\(id)"
    case .announced(let id, let name):
      return "a\(name.instance.number) \(name.number) \(id)"
    case .confirmed(let name, let instance):
      return "k\(name.instance.number) \(name.number) \(instance.number)"
    case .removed(let ids) where ids.count <= InstanceEvent.mostIDs:
      return "r" + ids.map(\.description).joined(separator: ",")
    case .removed: return lost
    case .purged(let id, let partial): return "p\(id) \(partial?.hex ?? "-")"
    case .batchPurged(let id): return "b\(id)"
    case .imagesDeleted(let images): return "i" + images.map(\.hex).joined(separator: ",")
    case .followed(let ids) where ids.count <= InstanceEvent.mostIDs:
      return "f" + ids.map(\.description).joined(separator: ",")
    // A process that follows a job repeats its request later.
    case .followed: return nil
    case .progress(let id, let version, let report):
      return (try? StoredJSON.encode(report)).map {
        "g\(id) \(version) \(String(decoding: $0, as: UTF8.self))"
      }
    case .cacheDeleted: return "d"
    case .constrained(let isConstrained): return isConstrained ? "n1" : "n0"
    case .lost: return lost
    // This event only concerns this process's connection.
    case .heartbeat: return nil
    }
  }

  /// Returns nil for an unknown kind: a newer instance may publish more kinds.
  static func decode(_ text: Substring) -> InstanceEvent? {
    let rest = text.dropFirst()
    switch text.first {
    case "q": return .queued
    case "e": return fingerprint(rest).map { .equalQueued($0) }
    case "o": return paused(rest)
    case "c": return JobID(rest).map { .changed($0) }
    case "a": return announced(rest)
    case "k": return confirmed(rest)
    case "r": return .removed(rest.split(separator: ",").compactMap { JobID($0) })
    case "p": return purged(rest)
    case "b": return BatchID(rest).map { .batchPurged($0) }
    case "i":
      return .imagesDeleted(rest.split(separator: ",").compactMap { ImageDigest(hex: $0) })
    case "f": return .followed(rest.split(separator: ",").compactMap { JobID($0) })
    case "g": return progress(rest)
    case "d": return .cacheDeleted
    case "n": return .constrained(rest == "1")
    case "l": return .lost
    default: return nil
    }
  }

  private static func purged(_ text: Substring) -> InstanceEvent? {
    let parts = text.split(separator: " ")
    guard parts.count == 2, let id = JobID(parts[0]) else { return nil }
    return .purged(id, partial: fingerprint(parts[1]))
  }

  private static func announced(_ text: Substring) -> InstanceEvent? {
    let parts = text.split(separator: " ")
    guard parts.count == 3, let name = announcement(parts), let id = JobID(parts[2]) else {
      return nil
    }
    return .announced(id, name)
  }

  private static func confirmed(_ text: Substring) -> InstanceEvent? {
    let parts = text.split(separator: " ")
    guard parts.count == 3, let name = announcement(parts), let number = Int64(parts[2]) else {
      return nil
    }
    return .confirmed(name, by: Instance(number: number))
  }

  private static func announcement(_ parts: [Substring]) -> AnnouncementID? {
    guard let instance = Int64(parts[0]), let number = Int64(parts[1]) else { return nil }
    return AnnouncementID(instance: Instance(number: instance), number: number)
  }

  private static func fingerprint(_ hex: Substring) -> Fingerprint? {
    ImageDigest(hex: hex).flatMap { Fingerprint(bytes: $0.bytes) }
  }

  private static func paused(_ text: Substring) -> InstanceEvent? {
    let parts = text.split(separator: " ", maxSplits: 1)
    guard parts.count == 2, let time = Int64(parts[0]) else { return nil }
    return .originPaused(String(parts[1]), .milliseconds(time))
  }

  private static func progress(_ text: Substring) -> InstanceEvent? {
    let parts = text.split(separator: " ", maxSplits: 2)
    guard parts.count == 3, let id = JobID(parts[0]), let version = Int(parts[1]),
      let report = try? StoredJSON.decode(ProgressReport.self, from: Array(parts[2].utf8))
    else { return nil }
    return .progress(id, version: version, report)
  }
}

/// A pipe that ends a wait for a socket from another thread.
private final class WakePipe: Sendable {
  private let (reading, writing): (Int32, Int32)

  init() {
    var ends: [Int32] = [-1, -1]
    // Without a pipe, each wait lasts until its timeout.
    if pipe(&ends) == 0 {
      for end in ends {
        _ = fcntl(end, F_SETFL, O_NONBLOCK)
        _ = fcntl(end, F_SETFD, FD_CLOEXEC)
      }
    }
    (reading, writing) = (ends[0], ends[1])
  }

  deinit {
    close(reading)
    close(writing)
  }

  func signal() {
    var byte: UInt8 = 1
    _ = write(writing, &byte, 1)
  }

  /// Waits for the signal, for readable data on the socket, or for the timeout.
  func wait(or socket: Int32?, for time: Duration) {
    var descriptors = [pollfd(fd: reading, events: Int16(POLLIN), revents: 0)]
    if let socket { descriptors.append(pollfd(fd: socket, events: Int16(POLLIN), revents: 0)) }
    _ = poll(&descriptors, UInt(descriptors.count), Int32(time.inMilliseconds))
    var bytes = [UInt8](repeating: 0, count: 64)
    while read(reading, &bytes, bytes.count) > 0 {}
  }
}
