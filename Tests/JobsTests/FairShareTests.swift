import Jobs
import TestSupport
import Testing

/// Holds the value under test, so that it can be changed within an expectation.
private final class Shared<Client: Hashable & Sendable> {
  private var value = FairShare<Client>()
  var held: Int { value.held }
  func share(of client: Client) -> Int { value.share(of: client) }
  func release(_ amount: Int, of client: Client) { value.release(amount, of: client) }
  func acquire(
    _ amount: Int, for client: Client, within bounds: ShareBounds, at moment: Timestamp
  ) -> Bool {
    value.acquire(amount, for: client, within: bounds, at: moment)
  }
}

@Suite("A capacity that clients share")
struct FairShareTests {
  private let moment = Timestamp(milliseconds: 1_000_000)
  private var later: Timestamp { moment + FairShare<String>.demandLifetime }

  @Test("one client may hold all of it while no other client needs some")
  func alone() {
    let shared = Shared<String>()
    #expect(shared.acquire(10, for: "a", within: 10, at: moment))
    #expect(!shared.acquire(1, for: "a", within: 10, at: moment))
    shared.release(1, of: "a")
    #expect(shared.acquire(1, for: "a", within: 10, at: moment))
    #expect(shared.held == 10 && shared.share(of: "a") == 10)
  }

  @Test("a client may hold half of it while another client holds some")
  func halves() {
    let shared = Shared<String>()
    #expect(shared.acquire(1, for: "b", within: 10, at: moment))
    #expect(!shared.acquire(6, for: "a", within: 10, at: moment))
    #expect(shared.acquire(5, for: "a", within: 10, at: moment))
    #expect(!shared.acquire(1, for: "a", within: 10, at: later))
    #expect(shared.acquire(4, for: "b", within: 10, at: moment))
    shared.release(5, of: "b")
    #expect(
      shared.acquire(1, for: "a", within: 10, at: later + FairShare<String>.demandLifetime))
  }

  @Test("a refused client gets what the first client releases")
  func refused() {
    let shared = Shared<String>()
    #expect(shared.acquire(10, for: "a", within: 10, at: moment))
    #expect(!shared.acquire(1, for: "b", within: 10, at: moment))
    shared.release(1, of: "a")
    #expect(!shared.acquire(1, for: "a", within: 10, at: moment))
    #expect(shared.acquire(1, for: "b", within: 10, at: moment))
  }

  @Test("a refusal counts for a minute, and only for other clients")
  func forgets() {
    let shared = Shared<String>()
    #expect(shared.acquire(10, for: "a", within: 10, at: moment))
    for _ in 0..<3 { #expect(!shared.acquire(1, for: "a", within: 10, at: moment)) }
    shared.release(3, of: "a")
    #expect(shared.acquire(3, for: "a", within: 10, at: moment))
    #expect(!shared.acquire(1, for: "b", within: 10, at: moment))
    #expect(!shared.acquire(1, for: "a", within: 10, at: moment))
    shared.release(2, of: "a")
    #expect(!shared.acquire(1, for: "a", within: 10, at: moment))
    #expect(shared.acquire(1, for: "a", within: 10, at: later))
  }

  @Test("a client that holds nothing may take one amount from the reserved part")
  func kept() {
    let shared = Shared<String>()
    #expect(shared.acquire(1, for: "a", within: .keepingQuarter(of: 8), at: moment))
    #expect(shared.acquire(5, for: "a", within: .keepingQuarter(of: 8), at: moment))
    #expect(!shared.acquire(1, for: "a", within: .keepingQuarter(of: 8), at: moment))
    #expect(shared.acquire(1, for: "b", within: .keepingQuarter(of: 8), at: moment))
    #expect(!shared.acquire(1, for: "b", within: .keepingQuarter(of: 8), at: moment))
    #expect(shared.acquire(1, for: "c", within: .keepingQuarter(of: 8), at: moment))
    #expect(shared.held == 8)
  }

  @Test("a client that held some until now counts as needing some")
  func noted() {
    var shared = FairShare<String>()
    shared.recordDemand(of: "a", at: moment)
    #expect(shared.available(for: "a", within: 10, at: moment) == 10)
    shared.recordDemand(of: "b", at: moment)
    #expect(shared.available(for: "a", within: 10, at: moment) == 5)
    #expect(shared.nextChange(at: moment) == later)
    #expect(shared.available(for: "a", within: 10, at: later) == 10)
    #expect(shared.nextChange(at: later) == nil)
  }

  @Test("a very small capacity still has room for two clients")
  func smallest() {
    let shared = Shared<String>()
    #expect(shared.acquire(1, for: "a", within: 3, at: moment))
    #expect(shared.acquire(1, for: "b", within: 3, at: moment))
    #expect(shared.acquire(1, for: "b", within: 3, at: moment))
    #expect(!shared.acquire(1, for: "c", within: 3, at: moment))
    #expect(!shared.acquire(.max, for: "d", within: ShareBounds(.max), at: moment))
  }

  @Test("a client has at most its own limit, and then does not count as needing capacity")
  func ofClient() {
    let shared = Shared<String>()
    let bounds = ShareBounds(10, ofClient: 3)
    #expect(shared.acquire(3, for: "a", within: bounds, at: moment))
    #expect(!shared.acquire(1, for: "a", within: bounds, at: moment))
    shared.release(3, of: "a")
    #expect(shared.acquire(10, for: "b", within: 10, at: moment))
  }

  /// States the rule again: with all demands ever recorded, and without sums.
  private struct Model {
    var held = [Int](repeating: 0, count: 5)
    var demands: [(client: Int, at: Timestamp)] = []

    func mayHold(
      _ amount: Int, _ client: Int, _ bounds: ShareBounds, at moment: Timestamp
    ) -> Bool {
      let others = held.indices.filter { $0 != client }
      let isNeeded = others.contains { other in
        held[other] > 0
          || demands.contains { $0.client == other && moment - $0.at < .seconds(60) }
      }
      let half = (bounds.all + 1) / 2
      let mine = held[client] + amount
      let all = held.reduce(0, +) + amount
      return mine <= (isNeeded ? half : bounds.all) && mine <= bounds.ofClient
        && all <= bounds.all - (held[client] > 0 ? bounds.reserved : 0)
    }
  }

  @Test(
    "random operations never exceed the capacity, follow the rule, and leave room for each newcomer",
    arguments: 0..<20)
  func random(seed: UInt64) {
    var random = SeededNumbers(state: seed)
    var moment = moment
    var (shared, model) = (FairShare<Int>(), Model())
    let all = Int.random(in: 1...40, using: &random)
    let bounds = [
      ShareBounds(all), .keepingQuarter(of: all),
      ShareBounds(all, ofClient: Int.random(in: 1...all, using: &random)),
    ].randomElement(using: &random)!
    for _ in 0..<500 {
      moment = moment + .milliseconds(Int.random(in: 0...20_000, using: &random))
      let client = Int.random(in: 0..<5, using: &random)
      let amount = Int.random(in: 1...5, using: &random)
      switch Int.random(in: 0..<8, using: &random) {
      case 0..<5:
        let expected = model.mayHold(amount, client, bounds, at: moment)
        let isGranted = shared.acquire(amount, for: client, within: bounds, at: moment)
        #expect(isGranted == expected)
        if isGranted {
          model.held[client] += amount
        } else if model.held[client] + amount <= bounds.ofClient {
          model.demands.append((client, moment))
        }
      case 5 where model.held[client] >= amount:
        shared.release(amount, of: client, at: moment)
        model.held[client] -= amount
        model.demands.append((client, moment))
      case 6 where model.held[client] > 0:
        shared.release(model.held[client], of: client)
        model.held[client] = 0
      default: break
      }
      #expect(shared.held == model.held.reduce(0, +) && shared.held <= bounds.all)
      for client in model.held.indices {
        #expect(shared.share(of: client) == model.held[client])
        let available = shared.available(for: client, within: bounds, at: moment)
        if model.held[client] == 0 {
          #expect((available > 0) == (shared.held < bounds.all), "a newcomer gets what is free")
        }
      }
    }
    for client in model.held.indices { shared.release(model.held[client], of: client) }
    #expect(shared.held == 0)
    let later = moment + .seconds(60)
    let mine = min(bounds.all, bounds.ofClient)
    #expect(shared.available(for: 0, within: bounds, at: later) == mine)
  }

  @Test("a single client gets all that is not reserved, one after the other")
  func conserves() {
    for all in 1...40 {
      let (shared, bounds) = (Shared<Int>(), ShareBounds.keepingQuarter(of: all))
      while shared.acquire(1, for: 1, within: bounds, at: moment) {}
      #expect(shared.held == all - all / 4)
    }
  }
}
