import Caching
import Testing

@testable import Engine
@testable import Jobs

@Suite("How a cache mode uses stored responses")
struct CachePolicyTests {
  private static let now = Timestamp(milliseconds: 1_800_000_000_000)
  private static let image = StoredImage(
    description: ImageDescription(format: .png, width: 1, height: 1),
    digest: ImageDigest(bytes: [UInt8](repeating: 1, count: 32))!, bytes: 1, url: nil,
    variant: .regular, modifiedAt: now)

  private static func entry(_ control: String, age: Int64) -> CacheEntry {
    let time = now.milliseconds - age * 1000
    let response = StoredResponse(
      to: [], fields: [Field(name: "Cache-Control", value: control)], requestTime: time,
      responseTime: time, assignedLifetime: nil)
    let id = CacheEntry.ID(key: Fingerprint(of: ["a"]), selector: Fingerprint(of: [""]))
    return CacheEntry(id: id, response: response, image: image)
  }

  /// - Parameter isOwn: whether the entries are stored under the key of this job.
  private func answer(
    _ mode: CacheMode, _ stored: [CacheEntry], isOwn: Bool = true, headers: [HeaderField] = [],
    lifetime: Int? = nil
  ) -> String {
    var submission = Submission(source: .url(SourceURL("http://a.example/")!, lowData: nil))
    (submission.headers, submission.cacheTTL) = (headers, lifetime)
    submission.cacheMode = mode
    let job = Job(
      id: JobIDSequence().next(at: Self.now), owner: .anonymous, submission: submission,
      priority: .normal, tags: [], createdAt: Self.now)
    let stored = stored.map { entry in
      var entry = entry
      if isOwn, let key = job.cacheKey { entry.id.key = key }
      return entry
    }
    switch CachePolicy(job).answer(from: stored, at: Self.now, fallback: nil) {
    case .use(_, let outcome, let isStale): return outcome.status.rawValue + (isStale ? "+" : "")
    case .validate: return "validate"
    case .fetch: return "fetch"
    case .notCached: return "not cached"
    }
  }

  /// The states: nothing stored, fresh, stale, stale-while-revalidate, no-cache.
  @Test(
    "each cache mode follows the Fetch standard",
    arguments: [
      (CacheMode.default, ["fetch", "hit", "validate", "stale+", "validate"]),
      (.noStore, ["fetch", "fetch", "fetch", "fetch", "fetch"]),
      (.reload, ["fetch", "fetch", "fetch", "fetch", "fetch"]),
      (.noCache, ["fetch", "validate", "validate", "validate", "validate"]),
      (.forceCache, ["fetch", "hit", "stale", "stale", "stale"]),
      (.onlyIfCached, ["not cached", "hit", "stale", "stale", "stale"]),
    ])
  func modes(mode: CacheMode, answers: [String]) {
    let stored: [[CacheEntry]] = [
      [], [Self.entry("max-age=60", age: 10)], [Self.entry("max-age=60", age: 100)],
      [Self.entry("max-age=60, stale-while-revalidate=60", age: 100)],
      [Self.entry("max-age=60, no-cache", age: 10)],
    ]
    #expect(stored.map { answer(mode, $0) } == answers)
  }

  @Test("a stale response to credentials is not used for other credentials")
  func credentials() {
    let own = [HeaderField(name: "Authorization", value: "a")]
    let credentials = Fingerprint(of: [Owner.anonymous.name, "authorization", "a"])
    for (mode, others) in [(CacheMode.forceCache, "validate"), (.onlyIfCached, "not cached")] {
      for (age, expected) in [(10 as Int64, "hit"), (100, others)] {
        var entry = Self.entry("max-age=60, must-revalidate", age: age)
        entry.credentials = credentials
        #expect(answer(mode, [entry]) == expected)
        #expect(answer(mode, [entry], headers: [own[0], own[0]]) == expected)
        #expect(answer(mode, [entry], headers: own) == (age == 10 ? "hit" : "stale"))
      }
    }
    // A job's cache_ttl applies to entries of its own.
    var entry = Self.entry("must-revalidate", age: 100)
    entry.credentials = credentials
    #expect(answer(.default, [entry], lifetime: 1_000) == "validate")
    #expect(answer(.default, [entry], headers: own, lifetime: 1_000) == "hit")
  }

  @Test("an entry under another key is used only if it and its redirects are for everyone")
  func othersKey() {
    for (control, redirect, expected) in [
      ("max-age=60", nil, "fetch"), ("public, max-age=60", nil, "hit"),
      ("s-maxage=60", nil, "hit"), ("public, max-age=60", "max-age=60", "fetch"),
      ("public, max-age=60", "public, max-age=60", "hit"),
    ] {
      var entry = Self.entry(control, age: 10)
      let time = entry.response.responseTime
      let redirects = redirect.map { control in
        [
          StoredRedirect(
            status: 302, to: [], hadFields: true,
            fields: [Field(name: "Cache-Control", value: control)], requestTime: time,
            responseTime: time)
        ]
      }
      entry.path = StoredPath(redirects: redirects ?? [], hadFields: true)
      #expect(answer(.default, [entry], isOwn: false) == expected)
    }
  }

  @Test("an image with another digest than the job requires is not used")
  func integrity() {
    var submission = Submission(source: .url(SourceURL("http://a.example/")!, lowData: nil))
    submission.integrity = ImageDigest(bytes: [UInt8](repeating: 2, count: 32))
    let job = Job(
      id: JobIDSequence().next(at: Self.now), owner: .anonymous, submission: submission,
      priority: .normal, tags: [], createdAt: Self.now)
    let answer = CachePolicy(job).answer(
      from: [Self.entry("max-age=60", age: 10)], at: Self.now, fallback: nil)
    guard case .fetch = answer else {
      Issue.record("\(answer)")
      return
    }
  }
}

@Suite("Equal requests")
struct RequestTests {
  private func job(
    _ url: String = "http://a.example/x", owner: String = "me",
    _ adjust: (inout Submission) -> Void = { _ in }
  ) -> Job {
    var submission = Submission(source: .url(SourceURL(url)!, lowData: nil))
    adjust(&submission)
    let now = Timestamp(milliseconds: 1_800_000_000_000)
    return Job(
      id: JobIDSequence().next(at: now), owner: Owner(owner), submission: submission,
      priority: .normal, tags: [], createdAt: now)
  }

  @Test("requests with the same URL and fields are equal for all owners and limits")
  func equal() {
    let one = job {
      $0.headers = [HeaderField(name: "Accept", value: "1"), HeaderField(name: "dnt", value: "2")]
      $0.timeout = .seconds(1)
    }
    let other = job("http://A.example/x#f", owner: "you") {
      $0.headers = [HeaderField(name: "DNT", value: "2"), HeaderField(name: "accept", value: "1")]
      $0.maxBytes = 5
    }
    #expect(one.request == other.request && one.partial == other.partial)
    #expect(one.request != nil && one.cacheKey == one.sharedCacheKey)
  }

  @Test("requests with a field that may be private are equal for the same owner only")
  func ownFields() {
    let fields = [HeaderField(name: "A", value: "1"), HeaderField(name: "b", value: "2")]
    let one = job { $0.headers = fields }
    let same = job {
      $0.headers = [HeaderField(name: "B", value: "2"), HeaderField(name: "a", value: "1")]
    }
    let other = job(owner: "you") { $0.headers = fields }
    let keys = [\Job.request, \.partial, \.cacheKey]
    for key in keys { #expect(one[keyPath: key] == same[keyPath: key]) }
    for key in keys { #expect(one[keyPath: key] != other[keyPath: key]) }
    for key in keys { #expect(one[keyPath: key] != job()[keyPath: key]) }
    #expect(one.sharedCacheKey == other.sharedCacheKey && one.sharedCacheKey == job().cacheKey)
  }

  @Test("no requests of different owners are equal if the cache is not shared")
  func apart() {
    var (one, other) = (job(), job(owner: "you"))
    let keys = [\Job.request, \.partial, \.cacheKey, \.sharedCacheKey]
    for key in keys { #expect(one[keyPath: key] == other[keyPath: key]) }
    (one.isApart, other.isApart) = (true, true)
    for key in keys { #expect(one[keyPath: key] != other[keyPath: key]) }
    for key in keys { #expect(one[keyPath: key] != job()[keyPath: key]) }
  }

  @Test("another field, mode, cache_ttl or URL makes another request")
  func different() {
    let plain = job()
    let requests = [
      plain, job("http://a.example/y"), job("https://a.example/x"),
      job { $0.headers = [HeaderField(name: "Authorization", value: "a")] },
      job { $0.headers = [HeaderField(name: "Authorization", value: "b")] },
      job { $0.headers = [HeaderField(name: "Authorizationa", value: "")] },
      job { $0.cacheMode = .reload }, job { $0.cacheKey = "http://a.example/x" },
      job { $0.cacheTTL = 0 }, job { $0.cacheTTL = 1_000_000 },
    ].map(\.request)
    #expect(Set(requests).count == requests.count)
    #expect(
      plain.request == Fingerprint(of: ["url", "http://a.example/x", "options of the load"]))
    #expect(plain.partial == job { $0.cacheMode = .reload }.partial)
  }

  @Test("a cache key replaces any URL, for its owner only")
  func cacheKey() {
    let one = job { $0.cacheKey = "k" }
    let rotated = job("http://b.example/z?token=2") { $0.cacheKey = "k" }
    let stranger = job(owner: "you") { $0.cacheKey = "k" }
    #expect(one.request == rotated.request && one.cacheKey == rotated.cacheKey)
    #expect(one.request != stranger.request && one.cacheKey != stranger.cacheKey)
  }

  @Test("a cache key is a different request for each of a job's URLs")
  func cacheKeyOfEachURL() {
    var job = job {
      $0.source = .url(SourceURL("http://a.example/x")!, lowData: SourceURL("http://a.example/y"))
      $0.alternatives = ["http://b.example/", "http://c.example/"].map { SourceURL($0)! }
      $0.cacheKey = "k"
    }
    for key in [\Job.request, \.partial, \.cacheKey, \.sharedCacheKey] {
      var found: [Fingerprint?] = []
      for target in [URLCandidate.regular, .lowData, .alternative(0), .alternative(1)] {
        job.target = target
        found.append(job[keyPath: key])
      }
      #expect(Set(found).count == 4 && !found.contains(nil))
    }
  }

  @Test("local images share no request")
  func others() {
    let submission = Submission(source: .local("a.png"))
    let now = Timestamp(milliseconds: 0)
    let local = Job(
      id: JobIDSequence().next(at: now), owner: .anonymous, submission: submission,
      priority: .normal, tags: [], createdAt: now)
    #expect(local.request == nil && local.partial == nil && local.origin == nil)
  }
}
