import Foundation
import TestSupport
import Testing

@Suite("Submitting on the dashboard", .browser, .timeLimit(.minutes(15)))
struct DashboardSubmittingTests {
  @Test("a list is sent in several requests, and the refused URLs stay in the field")
  func sendsLists() async throws {
    try await withDashboard(["IMAGEFETCH_API_MAX_BATCH": "2"]) { page in
      let urls = (0..<4).map { page.origin.url("/\($0).png") }
      let list = [urls[0], urls[1], urls[2], "ftp://a/b", urls[3]]
      try await page.browser.type(list.joined(separator: " ") + "\u{E007}", into: "#urls")
      try await page.sees(
        "text($('submit-message')).startsWith('4 jobs accepted, the others not:')")
      let message = try await page.run("return text($('submit-message'))") as? String ?? ""
      #expect(message.contains("ftp://a/b: Must be an absolute http"))
      #expect(!message.contains("Nothing was accepted"))
      try await page.sees("!$('urls').readOnly")
      #expect(try await page.run("return $('urls').value") as? String == "ftp://a/b")
      let jobs = try await page.service.get("/jobs").json()["jobs"] as? [[String: Any]] ?? []
      let submitted = jobs.compactMap { ($0["source"] as? [String: Any])?["url"] as? String }
      #expect(submitted.sorted() == urls)

      // The list was pasted outside the field. Refused URLs are then added to the field.
      let paste = """
        $('new-tags').value = 'x'.repeat(65);
        const data = new DataTransfer();
        data.setData('text/plain', arguments[0]);
        document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));
        """
      try await page.run(paste, [urls[0]])
      try await page.sees("text($('submit-message')).startsWith('Nothing was accepted:')")
      let left = "ftp://a/b\n\(urls[0])"
      #expect(try await page.run("return $('urls').value") as? String == left)
    }
  }

  @Test("the page says that the service does not respond, until it does")
  func hushes() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    try await withService { service in
      let page = try await service.get("/")
      let head = ScriptedReply.head(200, [("Content-Type", "text/event-stream")])
      let gate = Gate()
      origin.on("/", .ok(Array(page.body), type: "text/html"))
      origin.on("/jobs") { request in
        if request.method == "POST" { return ScriptedReply(.reset) }
        return .ok(Array(#"{"jobs": [], "next_cursor": null}"#.utf8), type: "application/json")
      }
      origin.on(
        "/events",
        inOrder: [
          ScriptedReply(.send(head), .hold(gate), .close),
          ScriptedReply(.send(head), .waitForClose),
        ])
      let browser = try await Browser()
      let seen = Dashboard(service: service, origin: origin, browser: browser)
      try await browser.open(origin.url("/"))
      try await seen.sees("$('connection').dataset.state === 'live'")
      try await browser.type("http://127.0.0.1/a.png\u{E007}", into: "#urls")
      try await seen.sees("text($('submit-message')) === 'The service does not answer.'")
      gate.open()
      #expect(await origin.waitForRequests(to: "/events", count: 2))
      try await seen.sees("$('connection').dataset.state === 'live' && !text($('submit-message'))")
      #expect(try await seen.run("return $('urls').value") as? String == "http://127.0.0.1/a.png")
      #expect(try await seen.complaints() == [])
      await browser.close()
    }
  }

  @Test("a failed file has advice what to send instead, and no retry button")
  func helpsWithFiles() async throws {
    try await withDashboard { page in
      let cut = page.service.folder + "/cut.jpg"
      let bytes = Fixtures.jpeg
      try Data(bytes.prefix(bytes.count / 2)).write(to: URL(filePath: cut))
      for file in [cut, Readme.root + "README.md"] {
        try await page.browser.type(file, into: "#files")
      }
      try await page.sees("is('cut.jpg', 'failure') && is('README.md', 'failure')")
      try await page.sees("text(card('cut.jpg')).includes('Only an intact copy')")
      try await page.sees("text(card('README.md')).includes('Supported are JPEG, PNG')")
      try await page.sees("cards.every((one) => one.querySelector('[data-do=again]').hidden)")
    }
  }
}
