import Foundation
import TestSupport
import Testing

@Suite("The dashboard's dialogs", .browser, .timeLimit(.minutes(15)))
struct DashboardDialogTests {
  private static let escape = "\u{E00C}"

  @Test("the token dialog stays open until a token is accepted")
  func insists() async throws {
    try await withDashboard(Dashboard.withTokens) { page in
      try await page.sees("$('token').open")
      for _ in 0..<3 {
        try await page.browser.press(Self.escape)
        try await page.sees("$('token').open")
      }
      // As in browsers that do not support this attribute.
      try await page.run("$('token').removeAttribute('closedby')")
      for _ in 0..<3 {
        try await page.browser.press(Self.escape)
        try await page.sees("$('token').open")
      }
      try await page.browser.type("web\u{E007}", into: "#token-value")
      try await page.sees("!$('token').open && $('connection').dataset.state === 'live'")
    }
  }

  @Test("the dashboard asks before it cancels many jobs or deletes any")
  func asksBeforeAll() async throws {
    try await withDashboard { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      _ = try await page.service.submit((0..<7).map { ["url": page.origin.url("/held.png?\($0)")] })
      try await page.sees("cards.length === 7")
      let isDone = "cards.length === 7 && cards.every((one) => one.dataset.phase === 'cancelled')"
      for answer in ["[value=no]", "[value=yes]"] {
        #expect(try await page.run("return \(isDone)") as? Bool == false)
        try await page.browser.click("#show-all")
        try await page.browser.click("#all [data-all=cancel]")
        try await page.sees("$('confirm').open && text($('confirm-title')) === 'Cancel 7 jobs?'")
        try await page.browser.click("#confirm \(answer)")
      }
      try await page.sees(isDone)
      try await page.browser.click("#show-all")
      try await page.browser.click("#all [data-all=forget]")
      try await page.sees("$('confirm').open && text($('confirm-title')) === 'Forget 7 jobs?'")
      try await page.browser.click("#confirm-yes")
      try await page.sees("cards.length === 0")
      #expect(try await page.service.get("/jobs").json()["jobs"] as? [String] == [])
    }
  }

  @Test("a click outside a dialog closes it, but not a click in its padding or a drag")
  func staysForDrags() async throws {
    try await withDashboard { page in
      let pointer = """
        const { left, top } = $('help').getBoundingClientRect();
        const places = { inside: [left + 3, top + 3], beside: [left - 20, top + 3] };
        for (const [type, place] of [['pointerdown', arguments[0]], ['click', arguments[1]]]) {
          const [clientX, clientY] = places[place];
          $('help').dispatchEvent(new PointerEvent(type, { clientX, clientY, bubbles: true }));
        }
        return $('help').open;
        """
      try await page.browser.click("#show-help")
      try await page.sees("$('help').open")
      for (from, to) in [("inside", "inside"), ("inside", "beside"), ("beside", "inside")] {
        #expect(try await page.run(pointer, [from, to]) as? Bool == true, "\(from) to \(to)")
      }
      #expect(try await page.run(pointer, ["beside", "beside"]) as? Bool == false)
    }
  }
}
