import Foundation
import TestSupport
import Testing

/// The configuration of a service with two owners. The digests are the SHA-256 of "alpha" and "beta".
let twoOwners = [
  "auth.tokens": """
  [{name: anna, sha256: 8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8, \
  scopes: [jobs, admin]}, \
  {name: bert, sha256: f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753, \
  scopes: [jobs]}]
  """
]
let (anna, bert) = (
  ["Authorization": "Bearer alpha"], ["Authorization": "Bearer beta"]
)

@Suite("Responses fetched by one owner", .timeLimit(.minutes(15)))
struct TenantTests {
  private static let fresh = [("Cache-Control", "max-age=600")]

  private func status(
    _ service: RunningService, _ url: String, _ fields: [String: String] = [:],
    mode: String = "default", by owner: [String: String]
  ) async throws -> String {
    let job: [String: Any] = ["url": url, "headers": fields, "cache": mode]
    let end = try await service.run(job, headers: owner)
    return end.error?.code ?? end.cache?.status ?? end.phase
  }

  @Test(
    "a response to a field of its own is not used for other owners or values",
    arguments: [
      "X-Api-Key", "X-Auth-Token", "Referer", "X-Forwarded-Host", "Cache-Control", "Accepted",
    ])
  func fields(name: String) async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x") { .ok(image($0.header(name) ?? ""), headers: Self.fresh) }
      let url = origin.url("/x")
      let own = [name: "max-age=1"]
      #expect(try await status(service, url, own, by: anna) == "miss")
      #expect(try await status(service, url, own, by: anna) == "hit")
      for mode in ["only-if-cached", "force-cache"] {
        let expected = mode == "force-cache" ? "miss" : "not_cached"
        #expect(try await status(service, url, own, mode: mode, by: bert) == expected)
      }
      #expect(try await status(service, url, by: bert) == "miss")
      #expect(try await status(service, url, [name: "max-age=2"], by: anna) == "miss")
      // A response without such fields does not answer a job that has one.
      #expect(try await status(service, url, [name: "max-age=3"], by: bert) == "miss")
      #expect(try await status(service, url, by: anna) == "hit")
      #expect(origin.requests.count == 5)
    }
  }

  @Test(
    "a response to a harmless field is used for all owners",
    arguments: ["Accept", "Accept-Language", "User-Agent", "DNT", "Save-Data"])
  func harmless(name: String) async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x", .ok(image("x"), headers: Self.fresh))
      #expect(try await status(service, origin.url("/x"), [name: "1"], by: anna) == "miss")
      #expect(try await status(service, origin.url("/x"), by: bert) == "hit")
    }
  }

  @Test(
    "a response is used for all owners if the origin allows it",
    arguments: ["public, max-age=600", "s-maxage=600"])
  func explicitlyPublic(control: String) async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x", .ok(image("x"), headers: [("Cache-Control", control)]))
      let url = origin.url("/x")
      #expect(try await status(service, url, ["X-Api-Key": "1"], by: anna) == "miss")
      #expect(try await status(service, url, by: bert) == "hit")
      #expect(try await status(service, url, ["X-Api-Key": "2"], by: bert) == "hit")
      #expect(try await status(service, url, ["Cookie": "a=b"], by: bert) == "hit")
    }
  }

  @Test(
    "a stale response to a credential is used for no other owner, unless it is public",
    arguments: [
      "max-age=0, must-revalidate", "s-maxage=0", "public, max-age=0",
    ])
  func stale(control: String) async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x", .ok(image("x"), headers: [("Cache-Control", control)]))
      let (url, own) = (origin.url("/x"), ["Cookie": "a=b"])
      #expect(try await status(service, url, own, by: anna) == "miss")
      #expect(try await status(service, url, own, mode: "only-if-cached", by: anna) == "stale")
      let others = try await status(service, url, mode: "only-if-cached", by: bert)
      #expect(others == (control.hasPrefix("public") ? "stale" : "not_cached"))
    }
  }

  @Test(
    "a response to a field that may change the image is used for no other owner, even if public")
  func poisoned() async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x") {
        .ok(
          image($0.header("X-Forwarded-Host") ?? "good"),
          headers: [("Cache-Control", "public, max-age=600")])
      }
      let url = origin.url("/x")
      #expect(try await status(service, url, ["X-Forwarded-Host": "evil"], by: anna) == "miss")
      #expect(try await status(service, url, ["X-Forwarded-Host": "evil"], by: anna) == "hit")
      #expect(try await status(service, url, by: bert) == "miss")
    }
  }

  @Test("an owner's response is not given to others in a shared transfer")
  func coalesced() async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      let gate = Gate()
      origin.on("/x", .held(image("x"), by: gate, headers: Self.fresh))
      let job: [String: Any] = ["url": origin.url("/x"), "headers": ["X-Api-Key": "1"]]
      let ids = [
        try await service.post(job, headers: anna), try await service.post(job, headers: anna),
      ]
      let others = try await service.post(job, headers: bert)
      #expect(await origin.waitForRequests(to: "/x", count: 2))
      gate.open()
      for id in ids { #expect(try await service.outcome(id, headers: anna).phase == "success") }
      #expect(try await service.outcome(others, headers: bert).phase == "success")
      #expect(origin.requests.count == 2)
    }
  }

  @Test("deleting a URL from the cache deletes it for all owners")
  func forgotten() async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x", .ok(image("x"), headers: Self.fresh))
      origin.on("/y", .ok(image("y"), headers: Self.fresh))
      let url = origin.url("/x")
      for key in ["1", "2"] {
        for owner in [anna, bert] {
          #expect(try await status(service, url, ["X-Api-Key": key], by: owner) == "miss")
        }
      }
      #expect(try await status(service, url, by: anna) == "miss")
      #expect(try await status(service, origin.url("/y"), by: anna) == "miss")
      let before = try await service.send("GET", "/cache", headers: anna).json()
      #expect(before["entries"] as? Int == 6)
      #expect(before["bytes"] as? Int == image("x").count + image("y").count)
      let query = try #require(url.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
      let answer = try await service.send("DELETE", "/cache?url=\(query)", headers: anna)
      #expect(try answer.json()["removed"] as? Int == 5)
      #expect(try await status(service, url, ["X-Api-Key": "1"], by: anna) == "miss")
      #expect(try await status(service, origin.url("/y"), by: bert) == "hit")
    }
  }

  @Test("a purge deletes the job's cached response")
  func purged() async throws {
    try await withPipeline(twoOwners) { service, origin async throws in
      origin.on("/x", .ok(image("x"), headers: Self.fresh))
      let job: [String: Any] = ["url": origin.url("/x"), "headers": ["X-Api-Key": "1"]]
      let first = try await service.run(job, headers: anna)
      let purge = try await service.send(
        "DELETE", "/jobs/\(first.id)?purge=true", headers: anna)
      #expect(purge.status == 204)
      #expect(try await service.run(job, headers: anna).cache?.status == "miss")
    }
  }

  @Test("owners have separate responses if the cache is not shared")
  func apart() async throws {
    let keys = twoOwners.merging(["cache.shared": "false", "jobs.max_attempts": "1"]) { $1 }
    try await withPipeline(keys) { service, origin async throws in
      let url = origin.url("/x")
      let gate = Gate()
      origin.on(
        "/x", .held(image("x"), by: gate, headers: [("Cache-Control", "public, max-age=600")]))
      let first = [
        try await service.post(["url": url], headers: anna),
        try await service.post(["url": url], headers: anna),
      ]
      let second = try await service.post(["url": url], headers: bert)
      #expect(await origin.waitForRequests(to: "/x", count: 2))
      gate.open()
      for id in first { #expect(try await service.outcome(id, headers: anna).phase == "success") }
      #expect(try await service.outcome(second, headers: bert).phase == "success")
      #expect(origin.requests.count == 2, "owners share no transfer")
      for owner in [anna, bert] { #expect(try await status(service, url, by: owner) == "hit") }

      origin.on("/y", .ok(image("y"), headers: [("Cache-Control", "public, max-age=600")]))
      #expect(try await status(service, origin.url("/y"), by: anna) == "miss")
      #expect(
        try await status(service, origin.url("/y"), mode: "only-if-cached", by: bert)
          == "not_cached")

      let (png, half) = (Fixtures.png, Fixtures.png.count / 2)
      let tagged = Representation(png, etag: "\"v1\"")
      origin.on(
        "/z", inOrder: { tagged.reply(to: $0, breakingAt: half) }, { tagged.reply(to: $0) })
      let broken = try await service.run(["url": origin.url("/z")], headers: anna)
      #expect(broken.error?.code == "truncated")
      #expect(
        try await service.run(["url": origin.url("/z")], headers: bert).progress.resumedFrom == 0)
    }
  }
}
