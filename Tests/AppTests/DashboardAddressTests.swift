import Foundation
import TestSupport
import Testing

@Suite("The dashboard's details and addresses", .browser, .timeLimit(.minutes(15)))
struct DashboardAddressTests {
  @Test("the dashboard says why a job waits, on its card and in its details")
  func waits() async throws {
    try await withDashboard(["IMAGEFETCH_FETCH_MAX_PER_HOST": "1"]) { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      page.origin.on("/next.png", .held(Fixtures.png, by: Gate()))
      _ = try await page.service.submit(
        ["/held.png", "/next.png"].map { ["url": page.origin.url($0)] })
      try await page.sees("is('held.png', 'loading') && is('next.png', 'queued')")
      // There is no event for this reason, so the page polls.
      try await page.sees("text(card('next.png')).includes('limit of transfers')")
      try await page.click("details", of: "next.png")
      try await page.sees(
        "text($('details-facts')).includes('Waiting for its origin: The limit of')")
    }
  }

  @Test("filters, a search and a job have addresses that Back and a reload restore")
  func addresses() async throws {
    try await withDashboard { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      let id = try await page.service.submit(url: page.origin.url("/a.png"))
      let failed = try await page.service.submit(url: page.origin.url("/none.png"))
      _ = try await page.service.finished(id)
      _ = try await page.service.finished(failed)
      try await page.sees("is('a.png', 'success') && is('none.png', 'failure')")
      try await page.run("document.querySelector('.chip[data-phase=failure]').click()")
      try await page.browser.type("none", into: "#search")
      try await page.sees("location.hash === '#phase=failure&q=none' && !card('a.png')")
      try await page.click("details", of: "none.png")
      try await page.sees(
        "$('details').open && location.hash === '#phase=failure&q=none&job=\(failed)'")

      try await page.run("location.reload()")
      try await page.sees("$('details').open && text($('details-title')) === 'none.png'")
      try await page.sees("card('none.png') && !card('a.png') && $('search').value === 'none'")
      try await page.run("document.querySelector('#details [data-close]').click()")
      try await page.sees("!$('details').open && location.hash === '#phase=failure&q=none'")

      try await page.click("details", of: "none.png")
      try await page.sees("$('details').open")
      try await page.run("history.back()")
      try await page.sees("!$('details').open && location.hash === '#phase=failure&q=none'")
      // A link to a job that no filter shows.
      try await page.browser.open(page.service.base + "/#job=\(id)")
      try await page.sees("$('details').open && text($('details-title')) === 'a.png'")
    }
  }

  @Test("many jobs are shown in rows, few as cards, and the user can choose")
  func table() async throws {
    try await withDashboard { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      // Once the page shows a job, it has loaded the list, which would otherwise decide the layout.
      page.origin.on("/first.png", .ok(Fixtures.png))
      _ = try await page.service.submit(url: page.origin.url("/first.png"))
      try await page.sees("is('first.png', 'success')")
      let urls = (0..<60).map { ["url": page.origin.url("/a.png?\($0)")] }
      let answer = try await page.service.submit(urls).json()
      #expect((answer["jobs"] as? [Any])?.count == 60)
      // The layout does not change while jobs arrive.
      try await page.sees("cards.length > 3 && !$('wall').matches('.rows')")
      try await page.run("location.reload()")
      try await page.sees("$('wall').matches('.rows') && cards.length > 10")
      try await page.sees("cards.every((row) => row.offsetHeight === 36)")
      try await page.sees("is('a.png', 'success') && shows('a.png')")
      try await page.browser.click("#table")
      try await page.sees("!$('wall').matches('.rows') && cards[0].offsetHeight > 200")
      try await page.run("location.reload()")
      try await page.sees("location.hash === '#view=cards' && cards[0]?.offsetHeight > 200")
    }
  }

  @Test("the details offer variants to copy, the timing, and the jobs of an origin")
  func details() async throws {
    try await withDashboard { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      let id = try await page.service.submit(url: page.origin.url("/a.png"))
      _ = try await page.service.finished(id)
      _ = try await page.service.finished(page.service.submit(url: "http://10.0.0.1/b.png"))
      try await page.sees("is('a.png', 'success') && is('b.png', 'failure')")
      try await page.click("details", of: "a.png")
      try await page.sees("document.querySelectorAll('.waterfall [data-step]').length > 0")
      try await page.run(
        """
        $('variant-width').value = '320';
        $('variant-format').value = 'webp';
        $('variant-width').dispatchEvent(new Event('change'));
        """)
      let shown = try await page.sees("text($('variant-shown'))")
      let path = "\(shown)"
      #expect(path == "jobs/\(id)/image?width=320&format=webp")
      let variant = try await page.service.get("/" + path)
      #expect(variant.headers["content-type"] == "image/webp")
      // The text is copied, or shown if the page may not copy.
      try await page.run("document.querySelector('#variant [data-copy=img]').click()")
      try await page.sees("text($('toast')).match(/copied|<img src/)")
      try await page.run("document.querySelector('#details [data-close]').click()")
      try await page.sees("!$('details').open")
      let hosts = "[...document.querySelectorAll('.origins .host')]"
      try await page.sees("\(hosts).some((one) => one.shownText === '10.0.0.1')")
      try await page.run("\(hosts).find((one) => one.shownText === '10.0.0.1').click()")
      try await page.sees(
        "card('b.png') && !card('a.png') && location.hash === '#q=host%3A10.0.0.1'")
    }
  }

  @Test(
    "a batch leads to its jobs and errors, and the search finds batches, hosts, codes and words")
  func searches() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      page.origin.on("/single.png", .ok(Fixtures.png))
      page.origin.on("/a.png", .ok(Fixtures.png))
      _ = try await page.service.finished(page.service.submit(url: page.origin.url("/single.png")))
      _ = try await page.service.finished(page.service.submit(url: "http://10.0.0.1/b.png"))
      let lines = ["/a.png", "/none.png"].map(page.origin.url).joined(separator: "\n")
      let answer = try await page.service.send(
        "POST", "/batches?name=avatars", headers: ["Content-Type": "text/uri-list"],
        body: Data(lines.utf8))
      let batch = try #require(try answer.json()["id"] as? String)
      try await page.sees("is('a.png', 'success') && is('none.png', 'failure')")
      try await page.sees("cards.length === 4")

      try await page.sees("text(document.querySelector('.batch .name a')) === 'avatars'")
      try await page.run("document.querySelector('.batch .name a').click()")
      try await page.sees("location.hash === '#q=batch%3A\(batch)'")
      try await page.sees("$('search').value === 'batch:\(batch)'")
      try await page.sees("cards.length === 2 && card('a.png') && card('none.png')")
      try await page.sees("document.querySelector('.batch').matches('.chosen')")
      try await page.sees("document.querySelector('.codes a')")
      try await page.run("document.querySelector('.codes a').click()")
      try await page.sees("cards.length === 1 && card('none.png')")

      for (words, names) in [
        ("responded with 404", ["none.png"]), ("code:blocked_address", ["b.png"]),
        ("host:10.0.0.1", ["b.png"]),
        ("host:127.0.0.1 single", ["single.png"]), ("batch:\(batch) code:timeout", []),
        ("host:example.org", []),
      ] {
        let type = "$('search').value = arguments[0]; $('search').dispatchEvent(new Event('input'))"
        try await page.run(type, [words])
        let shown = "cards.map((one) => text(one.querySelector('.name'))).join()"
        try await page.sees("\(shown) === '\(names.joined(separator: ","))'")
      }
    }
  }

  @Test("a filter finds jobs that are older than the listed ones")
  func olderOfFilter() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      page.origin.on("/a.png", .ok(Fixtures.smallPNG))
      func send(_ lines: [String], named name: String) async throws -> String {
        let answer = try await page.service.send(
          "POST", "/batches?name=\(name)", headers: ["Content-Type": "text/uri-list"],
          body: Data(lines.joined(separator: "\n").utf8))
        let id = try #require(try answer.json()["id"] as? String)
        try await eventually {
          try await page.service.get("/batches/\(id)").json()["state"] as? String == "finished"
        }
        return id
      }
      let old = try await send(["/none.png", "/gone.png"].map(page.origin.url), named: "old")
      _ = try await send(Array(repeating: page.origin.url("/a.png"), count: 1_010), named: "new")
      try await page.browser.open(page.service.base + "/#q=code%3Aorigin_status")
      try await page.sees("is('none.png', 'failure') && is('gone.png', 'failure')")
      try await page.sees("cards.length === 2")
      try await page.browser.open("about:blank")
      try await page.browser.open(page.service.base + "/#q=batch%3A\(old)")
      try await page.sees("cards.length === 2 && card('none.png') && card('gone.png')")
    }
  }

  @Test("a name without a scheme is read as https")
  func schemes() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      try await page.browser.type(
        "no.invalid/cat.jpg no.invalid:8443/dog.jpg\u{E007}", into: "#urls")
      try await page.sees("is('cat.jpg', 'failure') && is('dog.jpg', 'failure')")
      let list = try await page.service.get("/jobs").json()
      let jobs = try #require(list["jobs"] as? [[String: Any]])
      let urls = jobs.compactMap { ($0["source"] as? [String: Any])?["url"] as? String }
      #expect(Set(urls) == ["https://no.invalid/cat.jpg", "https://no.invalid:8443/dog.jpg"])
    }
  }
}
