import Caching
import Testing

@Suite("A response after redirects")
struct StoredPathTests {
  private func fields(_ lines: [String]) -> [Field] {
    lines.map { line in
      let parts = line.split(separator: ":", maxSplits: 1)
      return Field(name: String(parts[0]), value: parts[1].drop { $0 == " " }.description)
    }
  }

  private func redirect(
    _ status: Int, _ lines: [String], client: [Field] = [], hadFields: Bool = true
  ) -> StoredRedirect {
    StoredRedirect(
      status: status, to: client, hadFields: hadFields, fields: fields(lines), requestTime: 0,
      responseTime: 0)
  }

  private func redirect(
    _ lines: [String], client: [Field] = [], hadFields: Bool = true
  ) -> StoredRedirect {
    redirect(302, lines, client: client, hadFields: hadFields)
  }

  private func response(_ lines: [String], to client: [Field] = []) -> StoredResponse {
    StoredResponse(
      to: client, fields: fields(lines), requestTime: 0, responseTime: 0, assignedLifetime: nil)
  }

  @Test(
    "a response after redirects may be stored if each redirect may be stored",
    arguments: [
      (301, [], true), (308, [], true), (302, [], false), (303, [], false), (307, [], false),
      (300, ["Cache-Control: max-age=5"], false), (302, ["Cache-Control: max-age=5"], true),
      (303, ["Cache-Control: s-maxage=5"], true), (307, ["Expires: 0"], true),
      (302, ["Cache-Control: public"], false), (301, ["Cache-Control: no-store"], false),
      (308, ["Cache-Control: private"], false), (301, ["Vary: a, *"], false),
      (302, ["Cache-Control: max-age=5, no-store"], false),
      (302, ["Cache-Control: private=\"x\", max-age=5"], true),
    ] as [(Int, [String], Bool)])
  func storing(status: Int, lines: [String], isPermitted: Bool) {
    let good = redirect(301, [])
    for redirects in [[redirect(status, lines)], [good, redirect(status, lines), good]] {
      let path = StoredPath(redirects: redirects, hadFields: true)
      #expect(
        path.permitsStoring(response(["Cache-Control: max-age=5"]), status: 200, client: [])
          == isPermitted)
    }
  }

  @Test(
    "a response after redirects must be shareable if its requests carried credentials",
    arguments: [
      (["Cache-Control: max-age=5"], ["Cache-Control: public"], true, false),
      (["Cache-Control: public, max-age=5"], ["Cache-Control: public"], true, true),
      (["Cache-Control: public, max-age=5"], ["Cache-Control: max-age=5"], true, false),
      (["Cache-Control: public, max-age=5"], ["Cache-Control: max-age=5"], false, true),
      (["Cache-Control: s-maxage=5"], [], false, true),
      ([], ["Cache-Control: public"], false, false),
    ] as [([String], [String], Bool, Bool)])
  func credentials(first: [String], last: [String], goesAlong: Bool, isPermitted: Bool) {
    for name in ["Authorization", "cookie"] {
      let client = [Field(name: name, value: "x")]
      let path = StoredPath(
        redirects: [redirect(301, first, client: client)], hadFields: goesAlong)
      #expect(
        path.permitsStoring(response(last), status: 200, client: client) == isPermitted)
    }
  }

  @Test("a response after redirects is shareable only if all responses say so")
  func forAll() {
    let (open, own) = (["Cache-Control: public, max-age=5"], ["Cache-Control: max-age=5"])
    for (first, last, isForAll) in [
      (open, open, true), (own, open, false), (open, own, false),
      (["Cache-Control: s-maxage=5"], open, true),
    ] {
      let path = StoredPath(redirects: [redirect(first)], hadFields: false)
      #expect(path.isShareable(response(last)) == isForAll)
    }
  }

  @Test(
    "a response after redirects matches a request if the Vary of every response matches the fields of its own request"
  )
  func matching() {
    let client = [Field(name: "Accept-Language", value: "de")]
    let other = [Field(name: "Accept-Language", value: "en")]
    let vary = ["Vary: Accept-Language", "Cache-Control: max-age=5"]
    let along = StoredPath(redirects: [redirect(vary, client: client)], hadFields: false)
    let plain = response(["Vary: Accept-Language"])
    #expect(along.matches(plain, client: client) && !along.matches(plain, client: other))
    let dropped = StoredPath(
      redirects: [redirect([], client: client), redirect(vary, client: client, hadFields: false)],
      hadFields: false)
    #expect(dropped.matches(plain, client: client) && dropped.matches(plain, client: other))
    #expect(along.selector(of: plain) != plain.selector)
    #expect(
      StoredPath(redirects: [redirect([])], hadFields: true).selector(of: plain) == plain.selector,
      "it replaces a response without redirects")
  }

  @Test(
    "a response after redirects is as fresh as the least fresh of all, and may be used stale only if all allow it"
  )
  func freshness() {
    func freshness(
      _ first: [String], _ last: [String], at seconds: Int64, assigned: Int? = nil,
      fallback: Int? = nil, status: Int = 302
    ) -> Freshness {
      Freshness(
        of: response(last), over: StoredPath(redirects: [redirect(status, first)], hadFields: true),
        at: seconds * 1000, assigned: assigned, fallback: fallback)
    }
    let (short, long) = (["Cache-Control: max-age=10"], ["Cache-Control: max-age=100"])
    for (first, last) in [(short, long), (long, short)] {
      #expect(freshness(first, last, at: 9).isFresh && !freshness(first, last, at: 10).isFresh)
      #expect(freshness(first, last, at: 9).freshUntil == 10_000)
    }
    let always = ["Cache-Control: max-age=100, no-cache"]
    #expect(!freshness(always, long, at: 1).isFresh)
    #expect(freshness(always, long, at: 1).freshUntil == nil)
    let lenient = [
      "Cache-Control: max-age=10, stale-while-revalidate=50, stale-if-error=50"
    ]
    for (first, last, permits) in [
      (lenient, long, true), (lenient, lenient, true), (lenient, short, false),
      (short, lenient, false), (lenient, always, false),
    ] {
      let stale = freshness(first, last, at: 20)
      #expect(stale.permitsStaleWhileRevalidating == permits)
      #expect(stale.permitsStaleIfError == permits)
    }
    // A redirect without a lifetime uses the operator's fallback, which the job can only shorten.
    for (assigned, fallback, isFresh) in [
      (nil, 60, true), (1_000, 60, true), (5, 60, false), (1_000, nil, false), (nil, 5, false),
    ] as [(Int?, Int?, Bool)] {
      #expect(
        freshness([], long, at: 20, assigned: assigned, fallback: fallback, status: 301).isFresh
          == isFresh)
    }
  }

  @Test("a response after redirects keeps only the caching fields of redirects")
  func kept() {
    let stored = redirect([
      "Location: /x?token=secret", "Set-Cookie: a=b", "ETag: \"1\"", "Cache-Control: max-age=5",
      "Vary: Accept", "Expires: 0", "Age: 1", "Last-Modified: 0", "Date: 0",
    ])
    #expect(
      Set(stored.response.fields.map(\.name))
        == ["Cache-Control", "Vary", "Expires", "Age", "Last-Modified", "Date"])
  }
}
