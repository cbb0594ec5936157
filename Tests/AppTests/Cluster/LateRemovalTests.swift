import Foundation
import Synchronization
import TestSupport
import Testing

@Suite("A removal from the bucket that comes late", .timeLimit(.minutes(5)))
struct LateRemovalTests {
  /// Holds the first request that begins so, until it is let go.
  private final class Held: Sendable {
    private let first = Mutex<[UInt8]?>(nil)
    private let isLet = Mutex(false)

    func judge(_ bytes: [UInt8]) -> FaultyProxy.Fault {
      guard bytes.starts(with: Array("DELETE ".utf8)) else { return .none }
      let isFirst = first.withLock { first in
        first = first ?? bytes
        return first == bytes
      }
      return isFirst && !isLet.withLock(\.self) ? .stall : .none
    }

    func letGo() { isLet.withLock { $0 = true } }
  }

  @Test("removes nothing that has come back since, whoever sent it, and however late it comes")
  func late() async throws {
    try await Cluster.open(2, ["cluster.lease": "5s"], isProxied: true) { cluster, origin in
      let proxy = try #require(cluster.proxies).bucket
      origin.on("/x", .ok(Fixtures.filedPNG))
      let first = try await cluster[0].run(["url": origin.url("/x")]).id
      let old = try #require(try await cluster.bucket.keys.first)

      // The other one stands still, so this one removes the object; it ends before that is done.
      let held = Held()
      proxy.judge { held.judge($0) }
      kill(cluster[1].processIdentifier, SIGSTOP)
      // Whatever the one that stands still holds in the database is given back within seconds.
      let purge = Task {
        while try await cluster[0].send("DELETE", "/jobs/\(first)?purge=true").status == 503 {}
      }
      try await eventually { proxy.stalled == 1 }
      try await cluster[0].kill()
      _ = await purge.result
      kill(cluster[1].processIdentifier, SIGCONT)

      let next = try await cluster[1].run(["url": origin.url("/x")])
      #expect(next.phase == "success", "\(next.summary)")
      let keys = try await cluster.bucket.keys
      #expect(keys.count == 1 && !keys.contains(old))
      #expect(try await cluster.bucket.keys == Array(cluster.knownObjects))

      // What shows that the held request is done, once it is.
      try await cluster.bucket.put(old, Fixtures.filedPNG)
      held.letGo()
      try await eventually { try await cluster.bucket.keys == keys }
      try FileManager.default.removeItem(atPath: cluster[0].folder + "/data/copies")
      try await cluster.replace(0)
      for service in cluster.services {
        #expect(try await service.image(of: next.id) == Fixtures.filedPNG)
      }
    }
  }
}
