import API
import Digests
import Foundation
import HTTP
import HTTPTypes
import Jobs
import TestSupport
import Testing

@Suite("GET /image")
struct ViewTests {
  static let keys = [[UInt8](repeating: 1, count: 32), [UInt8](repeating: 2, count: 16)]
  let open = Client { ($0.view.isEnabled, $0.maxWait) = (true, .milliseconds(1)) }
  let signed = Client { configuration in
    configuration.view.isEnabled = true
    configuration.maxWait = .milliseconds(1)
    configuration.view.signatures = ViewSignature(keys: Self.keys)
    configuration.tokens = [.of("web", [.jobs]), .of("root", [.admin])]
  }
  private let source = "https://example.org/cat.jpg"

  /// Computes what `openssl dgst -sha256 -hmac` would, as openapi.yaml describes it.
  private func sign(_ target: String, key: [UInt8] = keys[0]) -> String {
    let code = HMACSHA256.authenticationCode(for: target.utf8, key: key)
    return Data(code).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
      .replacing("=", with: "")
  }

  private var soon: Int64 { signed.service.now().milliseconds / 1000 + 60 }

  @Test("GET /image is 404 unless it is enabled")
  func off() async {
    for client in [Client(), Client { $0.tokens = [.of("web", [.jobs])] }] {
      for method: HTTPRequest.Method in [.get, .post, .options] {
        #expect(await client.send(method, "/image?url=\(source)").status == 404, "\(method)")
      }
      #expect(
        await client.get("/image?url=\(source)").detail
          == "GET /image is disabled. Set view.enabled to use it.")
    }
  }

  @Test("GET /image creates a job of the owner view, with high priority and all options")
  func job() async throws {
    let answer = await open.get(
      "/image?url=https%3A%2F%2Fexample.org%2Fa%3Fb%3D1&cache=reload&cache_ttl=5&max_bytes=100"
        + "&alternatives=https://b.example/&alternatives=https://c.example/&tags=x&cache_key=k"
        + "&low_data_url=https://low.example/&timeout=1.5&retention=0.001")
    #expect(answer.status == 202)
    let job = try #require(open.service.with { $0.jobs.values.first })
    #expect(job.owner == .view && job.priority == .high && job.tags == ["x"])
    var expected = Submission(
      source: .url(
        SourceURL("https://example.org/a?b=1")!, lowData: SourceURL("https://low.example/")))
    expected.cacheMode = .reload
    expected.cacheTTL = 5
    expected.maxBytes = 100
    expected.cacheKey = "k"
    expected.timeout = .seconds(1.5)
    expected.retention = .seconds(10)
    expected.alternatives = ["https://b.example/", "https://c.example/"].compactMap {
      SourceURL($0)
    }
    #expect(job.submission == expected)
    #expect(answer.fields[.link] == "</jobs/\(job.id)>; rel=\"describedby\"")
    #expect(answer.fields[.vary] == "Save-Data")
    let low = await open.get("/image?url=\(source)&priority=very_low")
    #expect(low.json?["priority"]?.string == "very_low")
  }

  @Test("a job of GET /image is kept for at least ten seconds, but at most the maximum retention")
  func retention() async throws {
    let client = Client { configuration in
      configuration.view.isEnabled = true
      configuration.maxWait = .milliseconds(1)
      configuration.limits.maxRetention = .seconds(5)
    }
    #expect(await client.get("/image?url=\(source)&retention=0.001").status == 202)
    let job = try #require(client.service.with { $0.jobs.values.first })
    #expect(job.submission.retention == .seconds(5))
  }

  @Test(
    "a mistake in the query names the parameter",
    arguments: [
      ("", "url missing_url"), ("url=ftp://a/", "url invalid_url"),
      ("url=https://a/&local=x", "local invalid_option"),
      ("url=https://a/&width=0", "width invalid_option"),
      ("url=https://a/&headers=x", "headers invalid_option"),
      ("url=https://a/&url=https://b/", "url invalid_option"),
    ])
  func mistakes(query: String, mistake: String) async {
    let answer = await open.get("/image?\(query)")
    #expect(answer.status == 422)
    #expect(answer.mistakes == [mistake])
    #expect(open.service.with { $0.jobs.isEmpty })
  }

  @Test("GET /image returns the image, a variant, a placeholder, or the failure")
  func answers() async throws {
    _ = await open.get("/image?url=\(source)")
    let id = try #require(open.service.with { $0.jobs.keys.first })
    let link = "</jobs/\(id)>; rel=\"describedby\""
    let loading = await open.get("/image?url=\(source)&placeholder=true&width=40")
    #expect(loading.status == 200 && loading.fields[PlaceholderTests.phase] == "queued")
    #expect(loading.fields[.cacheControl] == "no-store" && loading.fields[.link] == link)

    let image = try await StoredImage.of([1, 2, 3], url: #require(SourceURL(source)))
    open.service.with { $0.images[image.digest] = [1, 2, 3] }
    let now = open.service.now()
    open.service.change(id) { job in
      job.start(at: job.createdAt)
      let outcome = CacheOutcome(.miss, freshUntil: now + .seconds(90))
      job.succeed(with: image, cache: outcome, at: now, keptFor: .seconds(3600))
    }
    let shown = await open.get("/image?url=\(source)")
    #expect(shown.status == 200 && shown.bytes == [1, 2, 3] && shown.fields[.link] == link)
    #expect(shown.fields[.cacheControl] == "max-age=90")
    let tag = try #require(shown.fields[.eTag])
    let known = await open.get("/image?url=\(source)", [.ifNoneMatch: tag])
    #expect(known.status == 304 && known.fields[.cacheControl] == "max-age=90")
    let small = await open.get("/image?url=\(source)&width=4&format=webp")
    #expect(small.fields[.contentType] == "image/webp" && small.fields[.eTag] != tag)
    #expect(await open.get("/image?url=\(source)", [.range: "bytes=0-1"]).status == 206)
    #expect(open.service.with { $0.jobs.count } == 1)

    open.service.change(id) { $0.markImageEvicted() }
    #expect(await open.get("/image?url=\(source)").code == "image_gone")
    let failing = await open.get("/image?url=https://b.example/")
    let other = try #require(failing.json?["id"]?.string.flatMap { JobID($0) })
    open.service.change(other) { job in
      job.start(at: now)
      job.fail(.fetch(.timeout(seconds: 1)), at: now, keptFor: .seconds(1))
    }
    let failure = await open.get("/image?url=https://b.example/")
    #expect(failure.status == 404 && failure.code == "image_unavailable")
    #expect(failure.fields[.link] == "</jobs/\(other)>; rel=\"describedby\"")
    #expect(failure.json?["error"]?["code"]?.string == "timeout")
  }

  @Test("GET /image makes variants with the job, and returns one of them by its name")
  func variants() async throws {
    let variants = "%5B%7B%22width%22:4%7D,%7B%22name%22:%22big%22,%22width%22:8%7D%5D"
    let target = "/image?url=\(source)&variants=\(variants)"
    // The job of an earlier equal request is used, whatever the names of its variants.
    _ = await open.get("/image?url=\(source)")
    #expect(await open.get("\(target)&variant=big").status == 202)
    let other = await open.get(target.replacing("cat.jpg", with: "dog.jpg"))
    let names = open.service.with { $0.jobs.values.map { $0.submission.variants.map(\.name) } }
    #expect(other.status == 202 && Set(names) == [[], ["v0", "big"]])

    let image = try await StoredImage.of([1, 2, 3], url: #require(SourceURL(source)))
    open.service.with { $0.images[image.digest] = [1, 2, 3] }
    for id in open.service.with({ Array($0.jobs.keys) }) {
      open.service.change(id) { job in
        job.start(at: job.createdAt)
        job.succeed(with: image, cache: nil, at: job.createdAt, keptFor: .seconds(3600))
      }
    }
    for (name, width) in [("v0", 4), ("big", 8)] {
      #expect(await open.get("\(target)&variant=\(name)").status == 200)
      #expect(open.service.with { $0.opened.last?.rendition.width } == width)
    }
    #expect(await open.get(target).bytes == [1, 2, 3])
    #expect(await open.get("\(target)&variant=none").code == "not_found")
    for (query, mistake) in [("variants=x", "variants"), ("variant=big&width=4", "variant")] {
      let answer = await open.get("/image?url=\(source)&\(query)")
      #expect(answer.mistakes == ["\(mistake) invalid_option"])
    }
  }

  @Test(
    "a local service refuses GET /image from pages of other sites, unless the URL is signed")
  func crossSite() async throws {
    let foreign: HTTPFields = [.init("Sec-Fetch-Site")!: "cross-site", .init("Host")!: "127.0.0.1"]
    let near: HTTPFields = [.init("Sec-Fetch-Site")!: "same-site", .init("Host")!: "127.0.0.1"]
    let target = "/image?url=\(source)&wait=0"
    let here = Client { ($0.view.isEnabled, $0.allowedHosts) = (true, ["127.0.0.1"]) }
    #expect(await here.get(target, foreign).status == 403)
    #expect(await here.get(target, near).status == 202)
    #expect(await open.get(target, foreign).status == 202, "openly open")
    let keyed = Client {
      ($0.view.isEnabled, $0.allowedHosts) = (true, ["127.0.0.1"])
      $0.view.signatures = ViewSignature(keys: Self.keys)
    }
    let signed = "\(target)&expires=\(soon)"
    #expect(await keyed.get("\(signed)&signature=\(sign(signed))", foreign).status == 202)
  }

  @Test("GET /image waits for the image, as long as the client requests")
  func waits() async throws {
    let client = Client { $0.view.isEnabled = true }
    let answer = await client.get("/image?url=\(source)&wait=0.01")
    #expect(answer.status == 202)
    let preferred = await client.get("/image?url=\(source)", [.init("Prefer")!: "wait=0"])
    #expect(preferred.fields[.init("Preference-Applied")!] == "wait=0")
  }

  @Test("the priority of GET /image is not limited by the client's token")
  func priority() async throws {
    let client = Client {
      var low = Token.of("low", [.jobs])
      low.limits.maxPriority = .low
      $0.tokens = [low]
      $0.view.isEnabled = true
      $0.view.signatures = ViewSignature(keys: Self.keys)
    }
    let target = "/image?url=\(source)&expires=\(soon)"
    let fields: HTTPFields = [.authorization: "Bearer low"]
    let answer = await client.get("\(target)&signature=\(sign(target))", fields)
    #expect(answer.status == 202, "\(answer.text)")
    #expect(client.service.with { $0.jobs.values.map(\.priority) } == [.high])
  }

  @Test(
    "with tokens GET /image answers only to signed URLs that have not expired, with any of the keys"
  )
  func signatures() async throws {
    let target = "/image?url=https%3A%2F%2Fexample.org%2Fcat.jpg&width=20&expires=\(soon)"
    for key in Self.keys {
      let answer = await signed.get("\(target)&signature=\(sign(target, key: key))")
      #expect(answer.status == 202)
    }
    // At any position in the query.
    let (head, tail) = ("/image?url=\(source)", "expires=\(soon)")
    let middle = "\(head)&signature=\(sign("\(head)&\(tail)"))&\(tail)"
    #expect(await signed.get(middle).status == 202)
    #expect(await signed.send(.head, middle).status == 202)
    #expect(signed.service.with { $0.jobs.values.allSatisfy { $0.owner == .view } })
    let web: HTTPFields = [.authorization: "Bearer web"]
    let root: HTTPFields = [.authorization: "Bearer root"]
    #expect(await signed.get("/jobs", web).json?["jobs"]?.array?.isEmpty == true)
    #expect(await signed.get("/jobs", root).json?["jobs"]?.array?.isEmpty == false)
  }

  @Test("with tokens GET /image refuses unsigned URLs with 403, even with a token")
  func refuses() async throws {
    let target = "/image?url=\(source)&expires=\(soon)"
    let past = "/image?url=\(source)&expires=\(soon - 60)"
    let good = sign(target)
    let other = [UInt8](repeating: 3, count: 32)
    let refused = [
      "/image", "/image?url=\(source)", target, "\(target)&signature=",
      "\(target)&signature=\(good)&signature=\(good)", "\(target)&signature=\(good)=",
      "\(target)&signature=\(good.dropLast())", "\(target)&signature=\(sign(target, key: other))",
      "\(target)&width=20&signature=\(good)", "\(past)&signature=\(sign(past))",
      "\(target)&signature=\(good.replacing(good.prefix(1), with: good.hasPrefix("A") ? "B" : "A"))",
      "/image?url=\(source)&signature=\(sign("/image?url=\(source)"))",
      "\(target)&expires=\(soon)&signature=\(sign("\(target)&expires=\(soon)"))",
      "/image?expires=\(soon)&url=\(source)&signature=\(good)",
      "/image?url=\(source)&expires=x&signature=\(sign("/image?url=\(source)&expires=x"))",
      "\(target)&%73ignature=\(good)",
    ]
    for target in refused {
      for fields: HTTPFields in [[:], [.authorization: "Bearer web"]] {
        let answer = await signed.get(target, fields)
        #expect(answer.status == 403 && answer.code == "forbidden", "\(target)")
      }
    }
    #expect(signed.service.with { $0.jobs.isEmpty })
    // With keys, signatures are required even without tokens. Without keys they are ignored.
    let keyed = Client {
      $0.view.isEnabled = true
      $0.view.signatures = ViewSignature(keys: Self.keys)
    }
    #expect(await keyed.get("/image?url=\(source)&wait=0").status == 403)
    #expect(await keyed.get("\(target)&wait=0&signature=\(sign("\(target)&wait=0"))").status == 202)
    #expect(await open.get("\(target)&signature=x").status == 202)
  }

  @Test("the browser's copy expires with the URL")
  func expiry() async throws {
    let target = "/image?url=\(source)&expires=\(soon)"
    let url = "\(target)&signature=\(sign(target))"
    _ = await signed.get(url)
    let id = try #require(signed.service.with { $0.jobs.keys.first })
    let image = try await StoredImage.of([1], url: #require(SourceURL(source)))
    let now = signed.service.now()
    signed.service.with { $0.images[image.digest] = [1] }
    signed.service.change(id) { job in
      job.start(at: now)
      let outcome = CacheOutcome(.miss, freshUntil: now + .seconds(900))
      job.succeed(with: image, cache: outcome, at: now, keptFor: .seconds(3600))
    }
    let shown = await signed.get(url)
    #expect(shown.status == 200)
    // Each new job advances the test's clock by a millisecond.
    #expect(shown.fields[.cacheControl] == "max-age=59")
    signed.service.with { $0.milliseconds += 60_000 }
    #expect(await signed.get(url).status == 403)
  }

  @Test("a URL is signed with the newest key")
  func newest() async throws {
    let signature = ViewSignature(keys: Self.keys)
    let query = try #require(
      signature.signed(path: "/image", query: "url=\(source)", expires: soon))
    let target = "/image?url=\(source)&expires=\(soon)"
    #expect("/image?\(query)" == "\(target)&signature=\(sign(target))")
    #expect(await signed.get("/image?\(query)").status == 202)
    #expect(ViewSignature(keys: []).signed(path: "/", query: "", expires: 1) == nil)
  }
}
