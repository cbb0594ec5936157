import Foundation
import TestSupport
import Testing

@Suite("Batches on the dashboard", .browser, .timeLimit(.minutes(15)))
struct DashboardBatchTests {
  private static let row = "document.querySelector('.batch')"

  @Test("a batch is a row with a bar, its results, and a retry button per code")
  func row() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      let gate = Gate()
      page.origin.on("/a.png", .ok(Fixtures.png))
      page.origin.on("/b.png", .ok(Fixtures.png))
      page.origin.on("/held.png", .held(Fixtures.png, after: 9_000, by: gate))
      try await page.sees("$('batches-shown').hidden && $('connection').dataset.state === 'live'")
      let lines = [
        page.origin.url("/a.png"), page.origin.url("/none.png"), "nowhere",
        page.origin.url("/b.png"), page.origin.url("/held.png"),
      ]
      try await post(lines, named: "catalogue <b>", to: page)
      try await page.sees(
        "text(\(Self.row)).includes('2 done, 1 failed, 1 rejected, 1 loading')")
      try await page.sees(
        "text(\(Self.row)).includes('catalogue <b>') && text(\(Self.row)).includes('Running')")
      try await page.sees("text(\(Self.row).querySelector('.far')) === '4 of 5'")
      try await page.sees("\(Self.row).querySelector('.share').ariaValueNow === '80'")
      let widths = try await page.sees(
        "[...\(Self.row).querySelectorAll('.share span')].map((one) => one.style.width).join()")
      #expect("\(widths)" == "40%,20%,20%,0%,20%,0%")
      gate.open()
      try await page.sees("text(\(Self.row)).includes('Finished')")
      let link = "\(Self.row).querySelector('[data-batch=results]')"
      try await page.sees(
        "!\(link).hidden && \(Self.row).querySelector('[data-batch=cancel]').hidden")

      // A failure of the origin is retried by its code. Then no other failure is left to retry.
      page.origin.on("/none.png", .ok(Fixtures.png))
      try await page.sees("text(\(Self.row).querySelector('.codes')) === 'origin_status 1'")
      try await page.run("\(Self.row).querySelector('.acts [data-batch=retry]').click()")
      try await page.sees("text($('toast')).includes('None of its failed jobs')")
      try await page.run("\(Self.row).querySelector('.codes button').click()")
      try await page.sees("text(\(Self.row)).includes('4 done, 1 rejected')")
      try await page.sees("\(Self.row).querySelector('.codes').children.length === 0")

      try await page.run("\(Self.row).querySelector('[data-batch=forget]').click()")
      try await page.browser.click("#confirm-yes")
      try await page.sees("!\(Self.row) && $('batches-shown').hidden")
    }
  }

  @Test("the bar of a batch is not full while lines may arrive")
  func receiving() async throws {
    try await withDashboard { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      let answer = try await page.service.send(
        "POST", "/batches?open=true", headers: ["Content-Type": "text/uri-list"],
        body: Data(page.origin.url("/a.png").utf8))
      let id = try #require(try answer.json()["id"] as? String)
      try await page.sees("text(\(Self.row)).includes('1 done')")
      try await page.sees("text(\(Self.row)).includes('Receiving')")
      try await page.sees("text(\(Self.row).querySelector('.far')) === '1 of 1 so far'")
      try await page.sees("\(Self.row).querySelector('.share').ariaValueNow === null")
      let done = "\(Self.row).querySelector('.share [data-phase=success]')"
      try await page.sees("\(done).style.width === '90%'")
      _ = try await page.service.send("POST", "/batches/\(id)/close")
      try await page.sees("text(\(Self.row).querySelector('.far')) === '1 of 1'")
      try await page.sees("\(Self.row).querySelector('.share').ariaValueNow === '100'")
    }
  }

  @Test("a batch is cancelled after a confirmation, and its results are downloaded with a token")
  func cancel() async throws {
    try await withDashboard(Dashboard.withTokens) { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      try await page.browser.type("web\u{E007}", into: "#token-value")
      try await post(
        [page.origin.url("/a.png"), page.origin.url("/held.png")], named: nil, to: page,
        token: "web")
      try await page.sees("text(\(Self.row)).includes('1 done, 1 loading')")
      // Downloads are captured where they begin.
      try await page.run(
        """
        window.saved = [];
        const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => {
          if (!blob.type.startsWith('image/')) blob.text().then((text) => saved.push(text));
          return make(blob);
        };
        \(Self.row).querySelector('[data-batch=results]').click();
        """)
      let saved = try await page.sees("saved[0]")
      #expect("\(saved)".contains(#""line":1,"#) && !"\(saved)".contains(#""line":2,"#))
      try await page.run("\(Self.row).querySelector('[data-batch=cancel]').click()")
      try await page.sees("text($('confirm-text')).includes('1 job of Batch ')")
      try await page.browser.click("#confirm-yes")
      try await page.sees("text(\(Self.row)).includes('1 done, 1 cancelled')")
      try await page.sees("text(\(Self.row)).includes('Cancelled')")
    }
  }

  private func post(
    _ lines: [String], named name: String?, to page: Dashboard, token: String? = nil
  ) async throws {
    var parts = URLComponents()
    parts.queryItems = name.map { [URLQueryItem(name: "name", value: $0)] }
    var headers = ["Content-Type": "text/uri-list"]
    if let token { headers["Authorization"] = "Bearer \(token)" }
    let query = parts.percentEncodedQuery.map { "?\($0)" } ?? ""
    let answer = try await page.service.send(
      "POST", "/batches\(query)", headers: headers,
      body: Data(lines.joined(separator: "\n").utf8))
    #expect(answer.status == 202)
  }
}
