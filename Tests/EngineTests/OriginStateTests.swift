import Synchronization
import Testing

@testable import Engine
@testable import Jobs

@Suite("The rules of an origin")
struct OriginStateTests {
  private let start = ContinuousClock.now
  private var rules = OriginRules()

  private func failed(_ times: Int, at now: ContinuousClock.Instant) -> OriginState {
    var origin = OriginState()
    for _ in 0..<times {
      origin.begin(at: now, rules)
      origin.finish(.unreached, at: now, rules)
    }
    return origin
  }

  @Test("an origin that has not answered yet gets two transfers, or all if workers are idle")
  func unproven() {
    let origin = OriginState()
    #expect(origin.room(at: start, rules, isSpare: false) == 2)
    #expect(origin.room(at: start, rules, isSpare: true) == 6)
  }

  @Test("an origin that has answered gets the configured number of transfers")
  func proven() {
    var origin = OriginState()
    origin.begin(at: start, rules)
    origin.finish(.answered, at: start, rules)
    #expect(origin.room(at: start, rules, isSpare: false) == 6)
    for _ in 0..<6 { origin.begin(at: start, rules) }
    #expect(origin.room(at: start, rules, isSpare: true) == 0)
    origin.finish(.unknown, at: start, rules)
    #expect(origin.room(at: start, rules, isSpare: false) == 1)
  }

  @Test(
    "loads redirected elsewhere count against claimed jobs, but not against redirects to the origin"
  )
  func led() {
    var origin = OriginState()
    for _ in 0..<6 { origin.begin(at: start, rules) }
    for _ in 0..<6 { origin.recordRedirect(at: start, rules) }
    #expect(origin.room(at: start, rules, isSpare: true) == 0)
    #expect(origin.forRedirectedLoads.room(at: start, rules, isSpare: true) == 6)
    #expect(!origin.isForgettable(at: start, rules))
    origin.begin(at: start, rules)
    for _ in 0..<6 { origin.endRedirected() }
    #expect(origin.room(at: start, rules, isSpare: true) == 5)
    origin.finish(.answered, at: start, rules)
    #expect(origin.isForgettable(at: start, rules))
  }

  @Test("a probe that is redirected closes the circuit at once")
  func ledWhileOpen() {
    var origin = failed(5, at: start)
    let later = start + .seconds(5)
    origin.begin(at: later, rules)
    origin.recordRedirect(at: later, rules)
    #expect(origin.failures == 0 && origin.room(at: later, rules, isSpare: false) == 5)
  }

  @Test("redirects that wait for the origin go before claimed jobs")
  func waiting() {
    var origin = OriginState()
    origin.waiting = 5
    #expect(origin.room(at: start, rules, isSpare: true) == 1)
    var rules = rules
    rules.requestsPerSecond = 4
    #expect(origin.room(at: start, rules, isSpare: true) == 0, "the rate serves them first")
    origin.waiting = 0
    #expect(origin.room(at: start, rules, isSpare: true) == 1)
  }

  @Test(
    "five failures in a row open the circuit, and further jobs fail if workers are idle"
  )
  func opens() {
    #expect(failed(4, at: start).pause(at: start) == nil)
    let origin = failed(5, at: start)
    #expect(origin.pause(at: start) == .seconds(5))
    #expect(origin.room(at: start, rules, isSpare: false) == 0)
    #expect(origin.room(at: start, rules, isSpare: true) > 1_000)
    #expect(origin.nextChange(at: start, rules) == start + .seconds(5))
  }

  @Test("an answer resets the count of failures")
  func counts() {
    var origin = failed(4, at: start)
    origin.begin(at: start, rules)
    origin.finish(.answered, at: start, rules)
    origin.begin(at: start, rules)
    origin.finish(.unreached, at: start, rules)
    #expect(origin.pause(at: start) == nil)
    #expect(origin.failures == 1)
  }

  @Test("after a pause one request tries again, and its answer closes the circuit")
  func probes() {
    var origin = failed(5, at: start)
    let later = start + .seconds(5)
    #expect(origin.room(at: later, rules, isSpare: false) == 1)
    origin.begin(at: later, rules)
    #expect(origin.room(at: later, rules, isSpare: true) == 0)
    origin.finish(.answered, at: later, rules)
    #expect(origin.room(at: later, rules, isSpare: false) == 6)
  }

  @Test("a probe that was cancelled lets another request through")
  func abandonedProbe() {
    var origin = failed(5, at: start)
    let later = start + .seconds(5)
    origin.begin(at: later, rules)
    origin.finish(.unknown, at: later, rules)
    #expect(origin.room(at: later, rules, isSpare: false) == 1)
  }

  @Test("each failed probe doubles the pause, up to a minute")
  func doubles() {
    var origin = failed(5, at: start)
    var now = start
    var pauses: [Duration] = []
    for _ in 0..<6 {
      now += origin.pause(at: now) ?? .zero
      origin.begin(at: now, rules)
      origin.finish(.unreached, at: now, rules)
      pauses.append(origin.pause(at: now) ?? .zero)
    }
    #expect(pauses == [10, 20, 40, 60, 60, 60].map { .seconds($0) })
  }

  @Test("failures of transfers that began before the circuit opened don't prolong the pause")
  func lateFailures() {
    var origin = OriginState()
    for _ in 0..<6 { origin.begin(at: start, rules) }
    for _ in 0..<6 { origin.finish(.unreached, at: start, rules) }
    #expect(origin.pause(at: start) == .seconds(5))
  }

  @Test("a rate allows one request per interval, and unused ones are not saved")
  func rate() {
    var rules = rules
    rules.requestsPerSecond = 4
    var origin = OriginState()
    origin.begin(at: start, rules)
    origin.finish(.answered, at: start, rules)
    #expect(origin.room(at: start, rules, isSpare: true) == 0)
    #expect(origin.nextChange(at: start, rules) == start + .milliseconds(250))
    #expect(origin.room(at: start + .milliseconds(251), rules, isSpare: true) == 1)
    #expect(origin.room(at: start + .seconds(60), rules, isSpare: true) == 1)
  }

  @Test("a rate below one request per second is respected")
  func slowRate() {
    var rules = rules
    rules.requestsPerSecond = 0.5
    var origin = OriginState()
    origin.begin(at: start, rules)
    #expect(origin.room(at: start + .milliseconds(1_900), rules, isSpare: true) == 0)
    #expect(origin.room(at: start + .milliseconds(2_100), rules, isSpare: true) == 1)
  }

  @Test("an idle origin is forgotten, after a time even if it had failures")
  func forgets() {
    var origin = OriginState()
    origin.begin(at: start, rules)
    #expect(!origin.isForgettable(at: start, rules))
    origin.finish(.answered, at: start, rules)
    #expect(origin.isForgettable(at: start, rules))
    #expect(!failed(1, at: start).isForgettable(at: start, rules))
    #expect(failed(1, at: start).isForgettable(at: start + .seconds(601), rules))
  }

  @Test(
    "a failure counts against the origin only if it could not be reached or was silent",
    arguments: [
      (FetchError.connectFailure(host: "a", detail: ""), OriginState.Outcome.unreached),
      (.dnsFailure(host: "a", detail: ""), .unreached),
      (.stalled(seconds: 15), .silent(path: "/a".hashValue)),
      (.noResponse(host: "a", detail: ""), .silent(path: "/a".hashValue)),
      (.originStatus(503, retryAfter: nil), .answered),
      (.tlsFailure(host: "a", detail: ""), .answered), (.timeout(seconds: 0.001), .unknown),
      (.cancelled, .unknown), (.blocked(target: "a", .host), .unknown),
    ])
  func outcomes(error: FetchError, outcome: OriginState.Outcome) {
    #expect(OriginState.Outcome(error, path: "/a") == outcome)
  }

  @Test("one silent path counts once until the origin answers, and never opens the circuit")
  func silentPath() {
    var origin = OriginState()
    for _ in 0..<100 {
      origin.begin(at: start, rules)
      origin.finish(.silent(path: 7), at: start, rules)
    }
    #expect(origin.failures == 1 && origin.pause(at: start) == nil)
    #expect(origin.room(at: start, rules, isSpare: false) == rules.unprovenTransfers)
    #expect(!origin.isForgettable(at: start, rules))
    origin.begin(at: start, rules)
    origin.finish(.answered, at: start, rules)
    #expect(origin.failures == 0)
  }

  @Test("a circuit opens after as many silent paths as failures, and a failed probe prolongs it")
  func silentPaths() {
    var origin = OriginState()
    for path in 1...rules.maxFailures {
      #expect(origin.pause(at: start) == nil)
      origin.begin(at: start, rules)
      origin.finish(.silent(path: path), at: start, rules)
    }
    #expect(origin.pause(at: start) == rules.firstPause)
    let later = start + rules.firstPause
    #expect(origin.room(at: later, rules, isSpare: false) == 1)
    origin.begin(at: later, rules)
    origin.finish(.silent(path: 1), at: later, rules)
    #expect(origin.pause(at: later) == rules.firstPause * 2)
  }

  // MARK: Owners

  private let anna = Owner("anna")
  private let ben = Owner("ben")

  private func silent(
    _ paths: ClosedRange<Int>, of owner: Owner, at now: ContinuousClock.Instant,
    _ origin: inout OriginState
  ) {
    for path in paths {
      origin.begin(by: owner, at: now, rules)
      origin.finish(.silent(path: path), by: owner, at: now, rules)
    }
  }

  @Test("one owner's silent paths pause the origin only for that owner while another uses it")
  func ownCircuit() throws {
    var origin = OriginState()
    origin.begin(by: ben, at: start, rules)
    silent(1...20, of: anna, at: start, &origin)
    #expect(origin.pause(at: start) == nil)
    #expect(origin.refusal(of: ben, at: start, rules) == nil)
    let refusal = try #require(origin.refusal(of: anna, at: start, rules))
    #expect(refusal.time == rules.firstPause)
    // After the pause one request tries again.
    let later = start + rules.firstPause
    #expect(origin.refusal(of: anna, at: later, rules) == nil)
    origin.begin(by: anna, at: later, rules)
    #expect(origin.refusal(of: anna, at: later, rules)?.time == rules.firstPause)
    origin.finish(.silent(path: 99), by: anna, at: later, rules)
    #expect(origin.refusal(of: anna, at: later, rules)?.time == rules.firstPause * 2)
    origin.finish(.answered, by: ben, at: later, rules)
    #expect(origin.refusal(of: anna, at: later, rules) == nil)
  }

  @Test("silent paths of two owners pause the origin for all owners")
  func sharedCircuit() {
    var origin = OriginState()
    origin.begin(by: ben, at: start, rules)
    silent(1...20, of: anna, at: start, &origin)
    silent(21...21, of: ben, at: start, &origin)
    #expect(origin.pause(at: start) == nil)
    silent(22...22, of: ben, at: start, &origin)
    #expect(origin.pause(at: start) == rules.firstPause)
  }

  @Test("failed connections pause the origin for all owners")
  func unreached() {
    var origin = OriginState()
    origin.begin(by: ben, at: start, rules)
    for _ in 0..<5 {
      origin.begin(by: anna, at: start, rules)
      origin.finish(.unreached, by: anna, at: start, rules)
    }
    #expect(origin.pause(at: start) == rules.firstPause)
  }

  @Test("a pause caused by the only owner applies to that owner alone once another uses the origin")
  func onlyOwner() {
    var origin = OriginState()
    silent(1...5, of: anna, at: start, &origin)
    #expect(origin.pause(at: start) == rules.firstPause)
    origin.recordUse(by: anna, at: start, rules)
    #expect(origin.pause(at: start) == rules.firstPause)
    origin.recordUse(by: ben, at: start, rules)
    #expect(origin.pause(at: start) == nil)
    #expect(origin.refusal(of: anna, at: start, rules)?.time == rules.firstPause)
    #expect(origin.refusal(of: ben, at: start, rules) == nil)
    silent(21...22, of: ben, at: start, &origin)
    #expect(origin.pause(at: start) == rules.firstPause)
  }

  @Test("a limited number of owners have circuits of their own")
  func manyOwners() {
    var rules = rules
    rules.maxFailures = 1_000
    var origin = OriginState()
    origin.begin(by: ben, at: start, rules)
    for number in 0..<200 {
      let owner = Owner("owner \(number)")
      origin.begin(by: owner, at: start, rules)
      origin.finish(.silent(path: number), by: owner, at: start, rules)
    }
    #expect(origin.ownCircuits <= 64)
  }
}

@Suite("Permits for requests to origins", .timeLimit(.minutes(15)))
struct OriginLimitsTests {
  private let origin = "http://a.example"

  @Test(
    "one owner's silent paths neither affect another owner nor are published")
  func owners() throws {
    let paused = Mutex(0)
    let origins = OriginLimits(
      OriginRules(), onPause: { _, _ in paused.withLock { $0 += 1 } }, onRoom: {})
    let (anna, ben) = (Owner("anna"), Owner("ben"))
    for path in 1...5 {
      try origins.enter(origin, for: anna)?.record(.silent(path: path))
    }
    #expect(origins.paused == 1)
    #expect(origins.room(at: origins.now, isSpare: false)[origin] == 0)
    origins.recordDemand(for: [origin], by: ben)
    #expect(origins.paused == 0)
    #expect(origins.room(at: origins.now, isSpare: false)[origin] > 0)
    #expect(throws: FetchError.self) { try origins.enter(origin, for: anna) }
    #expect(try origins.enter(origin, for: ben) != nil)
    #expect(paused.withLock { $0 } == 0)
  }

  @Test("a released permit gives its slot back and signals that there is room")
  func room() async throws {
    try await confirmation(expectedCount: 1) { hasRoom in
      let origins = OriginLimits(OriginRules()) { hasRoom() }
      var permit: OriginPermit? = try origins.enter(origin)
      #expect(origins.room(at: origins.now, isSpare: true)[origin] == 5)
      #expect(origins.room(at: origins.now, isSpare: true)["http://b.example"] == 6)
      permit?.record(.answered)
      permit = nil
      #expect(origins.room(at: origins.now, isSpare: true)[origin] == 6)
    }
  }

  @Test("a redirect waits for room and is the next to get it")
  func admission() async throws {
    var rules = OriginRules()
    rules.maxTransfers = 1
    let origins = OriginLimits(rules) {}
    let first = try origins.enter(origin)
    async let second = origins.admit(origin)
    while origins.room(at: origins.now, isSpare: true)[origin] != 0 { await Task.yield() }
    #expect(try origins.enter(origin) == nil)
    withExtendedLifetime(first) {}
    _ = consume first
    withExtendedLifetime(try await second) {
      #expect(origins.room(at: origins.now, isSpare: true)[origin] == 0)
    }
  }

  @Test(
    "a claimed job whose slot was taken waits behind the loads that wait already"
  )
  func overtaken() async throws {
    var rules = OriginRules()
    rules.maxTransfers = 2
    let origins = OriginLimits(rules) {}
    #expect(origins.room(at: origins.now, isSpare: true)[origin] == 2)
    // A background load arrives while the store is asked for two jobs.
    var background: OriginPermit? = try await origins.admit(origin)
    let first = try #require(try origins.enter(origin))
    #expect(try origins.enter(origin) == nil)
    async let second = origins.admit(origin)
    while origins.room(at: origins.now, isSpare: true)[origin] != 0 { await Task.yield() }
    _ = background.take()
    let held = try await [first, second]
    #expect(try origins.enter(origin) == nil)
    withExtendedLifetime(held) {}
  }

  @Test("two full origins that redirect to each other admit both loads", .timeLimit(.minutes(1)))
  func crossing() async throws {
    var rules = OriginRules()
    rules.maxTransfers = 1
    let (origins, other) = (OriginLimits(rules) {}, "http://b.example")
    let loads = [OriginPermits(try origins.enter(origin)), OriginPermits(try origins.enter(other))]
    loads[0].recordRedirect()
    do {
      async let second = origins.admit(other)
      loads[1].recordRedirect()
      loads[0].add(try await second)
    }
    loads[1].add(try await origins.admit(origin))
    for load in loads { load.recordAnswer() }
    let room = { origins.room(at: origins.now, isSpare: true) }
    #expect(room()[origin] == 0 && room()[other] == 0)
    for load in loads { load.release() }
    #expect(room()[origin] == 1 && room()[other] == 1)
  }

  @Test("a load that is redirected back and forth counts once at each origin")
  func bouncing() async throws {
    let (origins, other) = (OriginLimits(OriginRules()) {}, "http://b.example")
    let room = { origins.room(at: origins.now, isSpare: true, isShared: true) }
    let load = OriginPermits(try origins.enter(origin))
    for _ in 0..<5 {
      for next in [other, origin] {
        load.recordRedirect()
        load.add(try await origins.admit(next))
        #expect(!load.hasNoRedirect)
      }
      load.recordAnswer()
      #expect(room()[origin] == 5 && room()[other] == 5)
      #expect(room().overall?.own == [origin: 1, other: 1])
    }
    load.release()
    #expect(room()[origin] == 6 && room()[other] == 6)
  }

  @Test("the end of a redirected load does not change the order of the waiting loads")
  func order() async throws {
    var rules = OriginRules()
    rules.maxTransfers = 1
    let calls = Mutex(0)
    let origins = OriginLimits(rules) { calls.withLock { $0 += 1 } }
    let (order, begun) = AsyncStream<Int>.makeStream()
    let led = OriginPermits(try origins.enter(origin))
    led.recordRedirect()
    let second = OriginPermits(try await origins.admit(origin))
    let waits = (1...2).map { number in
      Task.immediate { [origin] in
        let permit = try await origins.admit(origin)
        begun.yield(number)
        withExtendedLifetime(permit) {}
      }
    }
    let before = calls.withLock(\.self)
    led.release()
    #expect(calls.withLock(\.self) == before + 1, "a queued job may use its slot")
    // Gives a load that was woken too early the time to move to the end of the line.
    for _ in 0..<100 { await Task.yield() }
    second.release()
    for wait in waits { try await wait.value }
    begun.finish()
    let served: [Int] = await order.reduce(into: []) { $0.append($1) }
    #expect(served == [1, 2])
  }

  @Test("loads that wait for a rate begin in the order of their arrival")
  func rated() async throws {
    var rules = OriginRules()
    rules.maxTransfers = 100
    rules.requestsPerSecond = 50
    let origins = OriginLimits(rules) {}
    var ended: [OriginPermit] = [try await origins.admit(origin)]
    ended.append(try await origins.admit(origin))
    let (order, begun) = AsyncStream<Int>.makeStream()
    let waits = (0..<10).map { number in
      Task.immediate { [origin] in
        let permit = try await origins.admit(origin)
        begun.yield(number)
        withExtendedLifetime(permit) {}
      }
    }
    // The first load is signaled whenever there may be room, but the rate does not allow it.
    let left = Task.immediate { [origin] in try await origins.admit(origin) }
    while ended.popLast() != nil {}
    left.cancel()
    for wait in waits { try await wait.value }
    await #expect(throws: FetchError.cancelled) { try await left.value }
    begun.finish()
    let served: [Int] = await order.reduce(into: []) { $0.append($1) }
    #expect(served == Array(0..<10))
    #expect(origins.room(at: origins.now + .seconds(1), isSpare: true)[origin] == 1)
  }

  @Test("a failure after redirects counts against the origin that was asked last")
  func blame() async throws {
    let origins = OriginLimits(OriginRules()) {}
    let (between, last) = ("http://b.example", "http://c.example")
    for number in 0..<5 {
      let load = OriginPermits(try origins.enter(origin))
      for next in [between, last] {
        load.recordRedirect()
        load.add(try await origins.admit(next))
      }
      load.recordFailure(.connectFailure(host: "c.example", detail: ""), path: "/\(number)")
      load.release()
    }
    #expect(try origins.enter(origin) != nil && origins.enter(between) != nil)
    #expect(throws: FetchError.self) { try origins.enter(last) }
  }

  @Test("a request during a pause fails with the time until its end")
  func refusal() async throws {
    let origins = OriginLimits(OriginRules()) {}
    for _ in 0..<5 {
      let permit = try origins.enter(origin)
      permit?.record(.unreached)
    }
    #expect(origins.paused == 1)
    #expect { try origins.enter(origin) } throws: { error in
      guard
        case FetchError.unreachable(let origin, let failures, let seconds)? = error as? FetchError
      else { return false }
      return origin == self.origin && failures == 5 && 4...5 ~= seconds
    }
    await #expect(throws: FetchError.self) { try await origins.admit(origin) }
  }

  @Test(
    "a pause found here is published once, and one found by another instance applies here"
  )
  func shared() throws {
    let published = Mutex<[Duration]>([])
    let origins = OriginLimits(
      OriginRules(),
      onPause: { [origin] paused, time in
        #expect(paused == origin)
        published.withLock { $0.append(time) }
      }, onRoom: {})
    for _ in 0..<5 { try origins.enter(origin)?.record(.unreached) }
    #expect(published.withLock(\.count) == 1)
    #expect(published.withLock { $0.allSatisfy { $0 > .seconds(4) && $0 <= .seconds(5) } })

    let others = OriginLimits(OriginRules()) {}
    others.pause(origin, for: .seconds(30))
    #expect(others.paused == 1)
    #expect(throws: FetchError.self) { try others.enter(origin) }
    others.pause(origin, for: .zero)
    #expect(others.paused == 1, "the longer one holds")
    #expect(others.room(at: others.now, isSpare: false)[origin] == 0)
    let later = others.now + .seconds(31)
    #expect(others.room(at: later, isSpare: false)[origin] == 1, "one request tries again")
  }

  @Test("a wait with a timeout ends with it", .timeLimit(.minutes(1)))
  func inTime() async throws {
    var rules = OriginRules()
    rules.maxTransfers = 1
    let origins = OriginLimits(rules) {}
    let first = try origins.enter(origin)
    await #expect(throws: FetchError.timeout(seconds: 0.02)) {
      try await origins.admit(origin, within: .milliseconds(20))
    }
    withExtendedLifetime(first) {}
  }

  @Test(
    "all waiting loads that have room go on once the origin answers again", .timeLimit(.minutes(1)))
  func several() async throws {
    let moment = Mutex(ContinuousClock.now)
    let origins = OriginLimits(OriginRules(), clock: { moment.withLock { $0 } }) {}
    for _ in 0..<5 { try origins.enter(origin)?.record(.unreached) }
    moment.withLock { $0 += .seconds(6) }
    var trying: OriginPermit? = try origins.enter(origin)
    var waits = (0..<7).map { _ in
      Task.immediate { [origin] in try await origins.admit(origin) }
    }
    trying?.record(.answered)
    trying = nil
    var permits: [OriginPermit] = []
    for _ in 0..<6 { permits.append(try await waits.removeFirst().value) }
    #expect(origins.room(at: origins.now, isSpare: true)[origin] == 0)
    permits = []
    _ = try await waits[0].value
  }

  @Test("a cancelled wait ends at once")
  func cancelled() async throws {
    var rules = OriginRules()
    rules.maxTransfers = 1
    let origins = OriginLimits(rules) {}
    let first = try origins.enter(origin)
    let wait = Task { [origin] in
      do { _ = try await origins.admit(origin) } catch { return error as? FetchError }
      return nil
    }
    wait.cancel()
    #expect(await wait.value == .cancelled)
    withExtendedLifetime(first) {}
  }

  @Test("the number of remembered origins is limited")
  func bounded() throws {
    var rules = OriginRules()
    rules.maxRemembered = 100
    let origins = OriginLimits(rules) {}
    for number in 0..<1_000 { try origins.enter("http://\(number).example")?.record(.unreached) }
    #expect(origins.room(at: origins.now, isSpare: false).exceptions.count <= 100)
  }
}
