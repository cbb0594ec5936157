import Jobs
import Synchronization

/// Origins that treat each URL as the seed decides, and count concurrent requests.
final class Origins: ImageFetcher {
  /// The result of a request.
  enum Ending: CaseIterable { case whole, hangs, breaks, refuses, missing, broken }

  /// How the requests for a URL are answered.
  struct Plan {
    /// The results of the first requests, and of all later ones.
    var first: [Ending]
    var then: Ending
    var pieces: [[UInt8]]
    /// Pause before each piece, in milliseconds.
    var pause: Int
    var headers: [HeaderField]
    var url: SourceURL

    /// The failures that a job of this URL may have. Any job may also time out.
    var failures: Set<FailureCode> {
      var codes: Set<FailureCode> = [.timeout]
      for ending in first + [then] {
        switch ending {
        case .whole: break
        case .hangs: codes.insert(.stalled)
        case .breaks: codes.insert(.truncated)
        // The origin is paused then.
        case .refuses: codes.insert(.connectFailure)
        case .missing: codes.insert(.originStatus)
        case .broken: codes.insert(.decodeFailed)
        }
      }
      return codes
    }

    var bytes: [UInt8] { pieces.flatMap { $0 } }
    var mayBeWhole: Bool { then == .whole || first.contains(.whole) }
  }

  private struct Transfer: Sendable {
    let url: String
    /// Whether another transfer of the same URL has begun. This one must have been cancelled then.
    var hasRival = false
  }

  private struct State {
    var asked: [String: Int] = [:]
    var transfers: [Int: Transfer] = [:]
    var count = 0
  }

  let plans: [Plan]
  private let limit: Int
  private let faults: Faults
  private let isStrict: Bool
  private let miscounts: Bool
  private let state = Mutex(State())
  private let running = Mutex<[String: Int]>([:])

  /// - Parameters:
  ///   - limit: requests to one origin at the same time.
  ///   - isStrict: whether equal jobs must share transfers. Not if a cancelled load may be interrupted before its
  ///     task is cancelled.
  ///   - miscounts: whether concurrent requests are counted with a planted race, to test this program itself.
  init(
    _ count: Int, limit: Int, _ numbers: inout Numbers, isStrict: Bool, miscounts: Bool,
    _ faults: Faults
  ) {
    (self.limit, self.faults, self.isStrict, self.miscounts) = (limit, faults, isStrict, miscounts)
    plans = (0..<count).map { Self.plan($0, &numbers) }
  }

  private static func plan(_ number: Int, _ numbers: inout Numbers) -> Plan {
    let endings: [Ending] = [
      .whole, .whole, .whole, .whole, .whole, .hangs, .breaks, .refuses, .missing, .broken,
    ]
    let first = (0..<numbers.number(0...2)).compactMap { _ in endings.randomElement(using: &numbers)
    }
    let then = endings.randomElement(using: &numbers) ?? .whole
    var pieces = [Array("ok \(number) ".utf8)]
    for piece in 0..<numbers.number(0...3) {
      pieces.append([UInt8](repeating: UInt8(piece), count: 9))
    }
    let control =
      ["no-store", "max-age=1", "max-age=600", nil].randomElement(using: &numbers) ?? nil
    return Plan(
      first: first, then: then, pieces: pieces,
      pause: [0, 0, 3, 60].randomElement(using: &numbers) ?? 0,
      headers: control.map { [HeaderField(name: "Cache-Control", value: $0)] } ?? [],
      url: SourceURL("http://o\(number % 2).example/\(number)")!)
  }

  func plan(of url: SourceURL) -> Plan? { plans.first { $0.url == url } }

  func fetch(_ request: FetchRequest) async throws(FetchError) -> FetchedResponse {
    guard let plan = plan(of: request.url) else { throw .originStatus(404, retryAfter: nil) }
    let ending = state.withLock { state in
      let place = state.asked[request.url.string, default: 0]
      state.asked[request.url.string] = place + 1
      return place < plan.first.count ? plan.first[place] : plan.then
    }
    let body = Body(plan, ending, self, begin(request.url))
    do throws(FetchError) {
      try await body.pause()
      switch ending {
      case .refuses: throw .connectFailure(host: request.url.host, detail: "refused")
      case .missing: throw .originStatus(404, retryAfter: nil)
      case .whole, .hangs, .breaks, .broken:
        return FetchedResponse(
          url: request.url, status: 200, headers: plan.headers,
          contentLength: ending == .whole ? plan.bytes.count : nil, body: body,
          timings: TransferTimings())
      }
    } catch {
      body.end()
      throw error
    }
  }

  private func begin(_ url: SourceURL) -> Int {
    count(url.origin, 1)
    return state.withLock { state in
      for (number, transfer) in state.transfers where transfer.url == url.string {
        state.transfers[number]?.hasRival = true
      }
      state.count += 1
      state.transfers[state.count] = Transfer(url: url.string)
      return state.count
    }
  }

  /// Checks a transfer that continues, so it was not cancelled.
  fileprivate func goesOn(_ number: Int) {
    guard isStrict, let transfer = state.withLock({ $0.transfers[number] }) else { return }
    faults.expect(!transfer.hasRival, "two transfers of \(transfer.url) at once")
  }

  fileprivate func end(_ number: Int, _ url: SourceURL) {
    guard state.withLock({ $0.transfers.removeValue(forKey: number) }) != nil else { return }
    count(url.origin, -1)
  }

  private func count(_ origin: String, _ change: Int) {
    let now: Int
    if miscounts {
      let before = running.withLock { $0[origin, default: 0] }
      // Gives other threads time to run.
      let others = plans.filter { $0.url.origin == origin }.map(\.url.string)
      faults.expect(!others.isEmpty, "\(origin) has no URL")
      now = before + change
      running.withLock { $0[origin] = now }
    } else {
      now = running.withLock { running in
        running[origin, default: 0] += change
        return running[origin, default: 0]
      }
    }
    faults.expect(now >= 0 && now <= limit, "\(now) transfers of \(origin) at once")
  }

  /// Checks that no transfer is running.
  func expectIdle() {
    let left = state.withLock { $0.transfers.values.map(\.url) }
    faults.expect(left.isEmpty, "transfers are still running: \(left)")
    let counts = running.withLock { $0.filter { $0.value != 0 } }
    faults.expect(counts.isEmpty, "ended transfers are still counted: \(counts)")
  }

  private final class Body: ImageBytes {
    private let plan: Plan
    private let ending: Ending
    private let origins: Origins
    private let number: Int
    private let sent = Mutex(0)

    init(_ plan: Plan, _ ending: Ending, _ origins: Origins, _ number: Int) {
      (self.plan, self.ending, self.origins, self.number) = (plan, ending, origins, number)
    }

    deinit { end() }

    func end() { origins.end(number, plan.url) }

    func next() async throws(FetchError) -> [UInt8]? {
      do throws(FetchError) {
        try await pause()
        let place = sent.withLock { sent in
          defer { sent += 1 }
          return sent
        }
        if ending == .broken, place == 0 { return Array("no image".utf8) }
        if place < plan.pieces.count, ending == .whole || place == 0 { return plan.pieces[place] }
        switch ending {
        case .hangs:
          // Like a real fetcher. A job's own timeout ends much earlier.
          try await pause(for: .seconds(20))
          throw .stalled(seconds: 20)
        case .breaks: throw .truncated(received: 9, expected: nil)
        case .whole, .refuses, .missing, .broken: break
        }
        end()
        return nil
      } catch {
        end()
        throw error
      }
    }

    func pause() async throws(FetchError) {
      if plan.pause == 0 { await Task.yield() }
      try await pause(for: .milliseconds(plan.pause))
    }

    private func pause(for time: Duration) async throws(FetchError) {
      if time > .zero { try? await Task.sleep(for: time) }
      if Task.isCancelled { throw .cancelled }
      origins.goesOn(number)
    }
  }
}
