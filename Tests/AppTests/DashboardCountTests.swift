import Foundation
import TestSupport
import Testing

@Suite("The dashboard's counts", .browser, .timeLimit(.minutes(15)))
struct DashboardCountTests {
  @Test("an admin sees the service's counts, and the search finds older jobs")
  func countsAll() async throws {
    try await withDashboard { page in
      try await Self.fill(page)
      try await page.browser.open(page.service.base + "/")
      try await page.sees("text($('shown')) === '1,000 of 1,025 jobs'")
      try await page.sees(Self.chip("success", says: "1,020"))
      try await page.sees(Self.chip("failure", says: "5"))
      try await page.browser.click(".chip[data-phase=failure]")
      try await page.sees("cards.length === 5 && text($('shown')) === '5 of 1,025 jobs'")
      try await page.sees("cards.every((one) => one.dataset.phase === 'failure')")
    }
  }

  @Test("a client without counts sees that there may be more jobs")
  func countsHeld() async throws {
    try await withDashboard(Dashboard.withTokens) { page in
      try await Self.fill(page, ["Authorization": "Bearer web"])
      try await page.browser.type("web\u{E007}", into: "#token-value")
      try await page.sees("text($('shown')) === '1,000 jobs; the service has more'")
      try await page.sees(Self.chip("success", says: "1,000+"))
      try await page.sees(Self.chip("failure", says: "0+"))
      try await page.sees("text($('figure-queued')) === '0+'")
      try await page.browser.type("nothing-like-it", into: "#search")
      try await page.sees("text($('nothing')).includes('None of the jobs loaded so far')")
      try await page.run("document.querySelector('#nothing button').click()")
      try await page.browser.click(".chip[data-phase=failure]")
      try await page.sees("cards.length === 5 && text($('shown')) === '5 of 1,005+ jobs'")
      try await page.sees(Self.chip("failure", says: "5"))
      try await page.sees("$('older').hidden")
      // The list continues at its earlier position.
      try await page.browser.click(".chip[data-phase=failure]")
      try await page.sees("!$('older').hidden")
      try await page.run("$('older').click()")
      try await page.sees("text($('shown')) === '1,025 jobs'")
      try await page.sees(Self.chip("success", says: "1,020"))
    }
  }

  @Test("the queued lines of a new batch are counted and listed")
  func batchLines() async throws {
    try await withDashboard(["IMAGEFETCH_FETCH_MAX_PER_HOST": "2"]) { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      try await page.sees("$('connection').dataset.state === 'live' && text($('shown')) === ''")
      let lines = (0..<60).map { page.origin.url("/held.png?\($0)") }.joined(separator: "\n")
      let answer = try await page.service.send(
        "POST", "/batches", headers: ["Content-Type": "text/uri-list"], body: Data(lines.utf8))
      #expect(answer.status == 202)
      try await page.sees(Self.chip("queued", says: "58"))
      try await page.sees(Self.chip("loading", says: "2"))
      try await page.sees("text($('figure-queued')) === '58' && text($('figure-running')) === '2'")
      try await page.sees("text($('shown')) === '60 jobs'")
      try await page.sees(
        "text(document.querySelector('.batch .counts')) === '2 loading, 58 queued'")
      try await page.run("$('glance').open = true")
      try await page.sees("text($('origins')).includes('2 loading, 58 queued')")
      let queue = "58 queued above, 2 running below; 2 of 64 workers busy"
      try await page.sees("text($('queue-text')).startsWith('\(queue)')")
      try await page.browser.click(".chip[data-phase=queued]")
      try await page.sees("text($('shown')) === '58 of 60 jobs'")
      // Lines that never began end without an event per line.
      try await page.run("document.querySelector('.batch [data-batch=cancel]').click()")
      try await page.browser.click("#confirm-yes")
      try await page.sees(Self.chip("queued", says: "0"))
      try await page.sees(Self.chip("cancelled", says: "60"))
    }
  }

  @Test("without the service's counts, a new batch makes the counts incomplete")
  func batchLinesOfToken() async throws {
    var settings = Dashboard.withTokens
    settings["IMAGEFETCH_FETCH_MAX_PER_HOST"] = "2"
    try await withDashboard(settings) { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      try await page.browser.type("web\u{E007}", into: "#token-value")
      try await page.sees("$('connection').dataset.state === 'live'")
      let lines = (0..<600).map { page.origin.url("/held.png?\($0)") }.joined(separator: "\n")
      let answer = try await page.service.send(
        "POST", "/batches",
        headers: ["Content-Type": "text/uri-list", "Authorization": "Bearer web"],
        body: Data(lines.utf8))
      #expect(answer.status == 202)
      // A page of the list, and then the jobs after it.
      let queued = "text(document.querySelector('.chip[data-phase=queued] .number'))"
      try await page.sees("\(queued).match(/^(498|499|500)\\+$/)")
      try await page.sees("!$('older').hidden")
      try await page.run("$('older').click()")
      try await page.sees(Self.chip("queued", says: "598"))
    }
  }

  @Test("growing counts do not move the cards")
  func keepsRoom() async throws {
    try await withDashboard { page in
      let heights = """
        return ['0', '9,999', '9,999+'].map((count) => {
          document.querySelectorAll('.chip .number').forEach((number) => { number.textContent = count; });
          return document.querySelector('.filters').offsetHeight;
        });
        """
      for width in [1280, 1366, 1536, 1920] {
        try await page.browser.emulate(width: width, height: 900, isDark: false)
        try await page.sees("innerWidth === \(width)")
        let measured = try #require(try await page.run(heights) as? [Int])
        #expect(Set(measured).count == 1, "\(width): \(measured)")
      }
    }
  }

  private static func chip(_ phase: String, says count: String) -> String {
    "text(document.querySelector('.chip[data-phase=\(phase)] .number')) === '\(count)'"
  }

  /// Five failed jobs, and before them more successful jobs than the first page of the list.
  private static func fill(_ page: Dashboard, _ token: [String: String] = [:]) async throws {
    page.origin.on("/a.png", .ok(Fixtures.smallPNG))
    for (path, count) in [("/none.png", 5), ("/a.png", 510), ("/a.png", 510)] {
      let batch = (0..<count).map { _ in ["url": page.origin.url(path)] }
      let body = try JSONSerialization.data(withJSONObject: batch)
      let headers = token.merging(["Content-Type": "application/json"]) { $1 }
      let answer = try await page.service.send("POST", "/jobs", headers: headers, body: body)
      #expect(answer.status == 202)
      try await eventually {
        let path = "/jobs?phase=queued&phase=loading"
        let unfinished = try await page.service.get(path, headers: token).json()
        return (unfinished["jobs"] as? [Any])?.isEmpty == true
      }
    }
  }
}
