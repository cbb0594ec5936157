import Jobs
import Testing

/// Holds the value under test, so that it can be changed within an expectation.
private final class Shared<Client: Hashable & Sendable> {
  private var value = SharedCapacity<Client>()
  var held: Int { value.held }
  func share(of client: Client) -> Int { value.share(of: client) }
  func release(_ amount: Int, of client: Client) { value.release(amount, of: client) }
  func acquire(
    _ amount: Int, for client: Client, within capacity: Int, keeping kept: Int = 0,
    at moment: Timestamp
  ) -> Bool {
    value.acquire(amount, for: client, within: capacity, keeping: kept, at: moment)
  }
}

@Suite("A capacity that clients share")
struct SharedCapacityTests {
  private let moment = Timestamp(milliseconds: 1_000_000)
  private var later: Timestamp { moment + SharedCapacity<String>.demandLifetime }

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
      shared.acquire(1, for: "a", within: 10, at: later + SharedCapacity<String>.demandLifetime))
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
    #expect(shared.acquire(1, for: "a", within: 8, keeping: 2, at: moment))
    #expect(shared.acquire(5, for: "a", within: 8, keeping: 2, at: moment))
    #expect(!shared.acquire(1, for: "a", within: 8, keeping: 2, at: moment))
    #expect(shared.acquire(1, for: "b", within: 8, keeping: 2, at: moment))
    #expect(!shared.acquire(1, for: "b", within: 8, keeping: 2, at: moment))
    #expect(shared.acquire(1, for: "c", within: 8, keeping: 2, at: moment))
    #expect(shared.held == 8)
  }

  @Test("a client that held some until now counts as needing some")
  func noted() {
    var shared = SharedCapacity<String>()
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
    #expect(!shared.acquire(.max, for: "d", within: .max, at: moment))
  }

  @Test("the held total is zero after everything was released")
  func balances() {
    let shared = Shared<Int>()
    var taken = [Int](repeating: 0, count: 4)
    var random = SystemRandomNumberGenerator()
    for _ in 0..<2_000 {
      let client = Int.random(in: 0..<4, using: &random)
      let amount = Int.random(in: 1...9, using: &random)
      if Bool.random(using: &random), taken[client] >= amount {
        shared.release(amount, of: client)
        taken[client] -= amount
      } else if shared.acquire(amount, for: client, within: 40, at: moment) {
        taken[client] += amount
      }
      #expect(shared.held == taken.reduce(0, +) && shared.held <= 40)
    }
    for client in 0..<4 { shared.release(taken[client], of: client) }
    #expect(shared.held == 0)
  }
}
