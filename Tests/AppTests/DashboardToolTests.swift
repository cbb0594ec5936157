import Foundation
import TestSupport
import Testing

@Suite("Many jobs on the dashboard", .timeLimit(.minutes(5)))
struct DashboardToolTests {
  /// The names of what is shown, from top to bottom.
  private static let names = """
    [...cards].sort((a, b) => a.ariaPosInSet - b.ariaPosInSet).map((one) => text(one.querySelector('.name'))).join(' ')
    """

  @Test("are shown in the order of a column, what runs first in the table; the address keeps it")
  func orders() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      page.origin.on("/large.jpg", .ok(Fixtures.image("photo.jpg")))
      page.origin.on("/small.png", .ok(Fixtures.smallPNG))
      for name in ["held.png", "large.jpg", "small.png", "none.png"] {
        let id = try await page.service.submit(url: page.origin.url("/" + name))
        if name != "held.png" { _ = try await page.service.finished(id) }
      }
      try await page.sees("\(Self.names) === 'none.png small.png large.jpg held.png'")
      try await page.browser.click("#table")
      try await page.sees("\(Self.names) === 'held.png none.png small.png large.jpg'")
      try await page.browser.click("#columns [data-sort=name]")
      try await page.sees("\(Self.names) === 'held.png large.jpg none.png small.png'")
      try await page.run("document.querySelector('#columns [data-sort=size]').click()")
      try await page.sees("\(Self.names).startsWith('large.jpg small.png')")
      try await page.sees(
        "document.querySelector('#columns [aria-pressed=true]').dataset.sort === 'size'")
      // As it is on the wall, so it is read and tabbed through.
      try await page.sees("cards.map((one) => one.ariaPosInSet).join() === '1,2,3,4'")
      try await page.run("location.reload()")
      try await page.sees(
        "location.hash === '#view=table&sort=size' && \(Self.names).startsWith('large.jpg small')")
      try await page.run("cards[0].focus()")
      try await page.browser.press("\u{E015}")
      try await page.sees("document.activeElement === card('small.png')")
    }
  }

  @Test("are selected one by one or in a range, and changed and taken away alone")
  func selection() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      for name in ["a", "b", "c", "d"] {
        page.origin.on("/\(name).png", .ok(Fixtures.png))
        let url = page.origin.url("/\(name).png")
        let tags = name == "b" ? ["=1+1", "x,\"y\""] : []
        let id = try await page.service.submit(["url": url, "tags": tags]).json()["id"] as? String
        _ = try await page.service.finished(try #require(id))
      }
      try await page.sees(
        "cards.length === 4 && cards.every((one) => one.dataset.phase === 'success')")
      // Downloads are caught where they begin.
      try await page.run(
        """
        window.saved = [];
        const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => {
          if (!blob.type.startsWith('image/')) blob.text().then((text) => saved.push(text));
          return make(blob);
        };
        """)
      let pick = { (name: String, shift: Bool) in
        """
        card('\(name).png').querySelector('.pick')
          .dispatchEvent(new MouseEvent('click', { bubbles: true, shiftKey: \(shift) }));
        """
      }
      try await page.run(pick("c", false))
      try await page.sees("text($('show-all')) === 'Actions on 1…'")
      try await page.run(pick("a", true))
      try await page.sees("text($('show-all')) === 'Actions on 3…'")
      try await page.run("card('a.png').focus()")
      try await page.browser.press("x")
      try await page.sees("text($('show-all')) === 'Actions on 2…'")
      for format in ["csv", "json"] {
        try await page.browser.click("#show-all")
        try await page.sees("$('all').open && text($('all-title')) === '2 selected jobs'")
        try await page.browser.click("#all [data-export=\(format)]")
      }
      try await page.sees("saved.length === 2")
      let saved = try #require(try await page.run("return saved") as? [String])
      let lines = saved[0].components(separatedBy: "\r\n")
      #expect(lines.count == 4 && lines[3].isEmpty && lines[0].hasPrefix("id,phase,source,name"))
      #expect(lines[1].contains("/c.png") && lines[2].contains("/b.png"))
      // A spreadsheet must not take a stranger's text for a formula.
      #expect(lines[2].contains(#","'=1+1 x,""y""","#), "\(lines[2])")
      let jobs = try JSONSerialization.jsonObject(with: Data(saved[1].utf8)) as? [[String: Any]]
      #expect(jobs?.count == 2 && jobs?.allSatisfy { $0["phase"] as? String == "success" } == true)

      try await page.browser.click("#show-all")
      try await page.browser.click("#all [data-all=forget]")
      try await page.browser.click("#sure-yes")
      try await page.sees("cards.length === 2 && card('a.png') && card('d.png')")
      try await page.sees("text($('show-all')) === 'Actions…' && $('choose-none').hidden")
    }
  }

  @Test("their last quarter of an hour is plotted with a scale, and a bar says what it stands for")
  func plots() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      for name in ["a.png", "a.png?2", "none.png"] {
        _ = try await page.service.finished(
          page.service.submit(url: page.origin.url("/" + name)))
      }
      try await page.run("$('glance').open = true")
      try await page.sees("text($('throughput-text')).startsWith('2 done, 1 failed')")
      try await page.sees("text($('throughput-time')) === '15 minutes'")
      try await page.sees(
        "text(document.querySelector('.chart .scale.up')).match(/^[12]$/) "
          + "&& text(document.querySelector('.chart .from')) === '15 min ago'")
      let answer = try await page.service.get("/activity").json()
      #expect((answer["succeeded"] as? [Int])?.reduce(0, +) == 2)
      #expect((answer["failed"] as? [Int])?.reduce(0, +) == 1)
      // One of the last three: a step may have ended between the jobs.
      let told = try await page.sees(
        """
        (() => {
          const canvas = $('throughput-plot');
          const { right, top, width } = canvas.getBoundingClientRect();
          const tips = [0.5, 1.5, 2.5].map((bar) => {
            const clientX = right - (bar * width) / 60;
            canvas.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY: top + 5, bubbles: true }));
            return text(canvas.parentElement.querySelector('.tip'));
          });
          return tips.find((tip) => / [12] done, [01] failed$/.test(tip));
        })()
        """)
      #expect("\(told)".contains(#/^\d\d:\d\d:\d\d: /#))
    }
  }

  @Test("a job that was tried again tells of each try that failed")
  func tries() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "3"]) { page in
      try await page.sees("$('connection').dataset.state === 'live'")
      page.origin.on(
        "/a.png",
        inOrder: [.status(503), .status(502), .ok(Fixtures.png)])
      let id = try await page.service.submit(url: page.origin.url("/a.png"))
      _ = try await page.service.finished(id)
      try await page.sees("is('a.png', 'success')")
      try await page.click("details", of: "a.png")
      let tries =
        "[...document.querySelectorAll('.tries li')].map((one) => `${one.value} ${text(one)}`)"
      let told = try #require(try await page.sees("\(tries).length === 2 && \(tries)") as? [String])
      #expect(told[0].contains(#/^1 .*503/#) && told[1].contains(#/^2 .*502/#), "\(told)")
    }
  }

  @Test("are led to from a header with the version and links, and come high up on a phone")
  func header() async throws {
    try await withDashboard { page in
      page.origin.on("/a.png", .ok(Fixtures.png))
      _ = try await page.service.finished(page.service.submit(url: page.origin.url("/a.png")))
      let version = try await page.service.get("/openapi.json").json()["info"] as? [String: Any]
      try await page.sees(
        "text($('version')).startsWith('\(version?["version"] as? String ?? "none")')")
      for link in ["openapi.yaml", "metrics"] {
        let path = try await page.run(
          "return document.querySelector('nav a[href=\"\(link)\"]').href")
        #expect(path as? String == page.service.base + "/" + link)
        #expect(try await page.service.get("/" + link).status == 200)
      }
      try await page.browser.emulate(width: 390, height: 844, isDark: false)
      try await page.sees("innerWidth === 390 && card('a.png')")
      try await page.sees("card('a.png').getBoundingClientRect().top < 844 / 2")
    }
  }
}
