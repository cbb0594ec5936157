// The actions on jobs. Each one sends a request, updates the job from the response, and reports errors.

let toastEnd;

/** Shows a message for six seconds, above everything else. */
function toast(text) {
  const element = $('toast');
  setText(element, cut(text, 400));
  // Hiding and showing moves it above a dialog that was opened later.
  element.hidePopover();
  element.showPopover();
  clearTimeout(toastEnd);
  toastEnd = setTimeout(() => element.hidePopover(), 6000);
}

/** Asks for confirmation. Resolves to whether the user agreed. */
function confirmed(title, text, yes) {
  setText($('confirm-title'), title);
  setText($('confirm-text'), text);
  setText($('confirm-yes'), yes);
  const dialog = $('confirm');
  dialog.returnValue = 'no';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
  });
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages without TLS may not write to the clipboard, except on localhost. The user can copy the text by hand.
    toast(text);
    return;
  }
  toast(`${what} copied.`);
}

/**
 * The word for opening an image. A link can't send a token, so with a token the page fetches the image and saves it.
 */
const openWord = (what = '') => `${access.token ? 'Save' : 'Open'} ${what}`.trim();

const allWords = {
  cancel: (n) => `Cancel ${number.format(n)}`, again: (n) => `Fetch ${number.format(n)} again`,
  forget: (n) => `Forget ${number.format(n)} and their images`,
};
const changesAtOnce = 3;
/** The confirmations before an action on several jobs. Cancelling asks from six jobs on, forgetting always. */
const questions = {
  cancel: { from: 6, title: (jobs) => `Cancel ${jobs}?`, text: 'They stop now. Each can be fetched again.' },
  forget: { from: 1, title: (jobs) => `Forget ${jobs}?`, text: 'The jobs and their images are deleted from the service.' },
};

class Actions {
  constructor(jobs) {
    this.jobs = jobs;
    for (const button of $('menu').querySelectorAll('[data-do]')) {
      button.addEventListener('click', () => {
        $('menu').close();
        this.run(button.dataset.do, this.chosen);
      });
    }
    for (const button of $('all').querySelectorAll('[data-export]')) {
      button.addEventListener('click', () => {
        $('all').close();
        exports[button.dataset.export](this.offered);
      });
    }
    for (const button of $('all').querySelectorAll('[data-all]')) {
      button.addEventListener('click', () => {
        $('all').close();
        this.runAll(button.dataset.all);
      });
    }
  }

  /**
   * Opens the dialog with the actions on several jobs.
   * @param isChosen whether the jobs were selected; otherwise they are all that are shown.
   */
  offerAll(entries, isChosen) {
    this.offered = entries;
    setText($('all-title'), isChosen ? count(entries.length, 'selected job') : `All ${count(entries.length, 'job')} shown`);
    $('all-hint').hidden = isChosen;
    for (const button of $('all').querySelectorAll('[data-all]')) {
      const { all } = button.dataset;
      const n = entries.filter((entry) => allowed(entry, all)).length;
      button.disabled = n === 0;
      setText(button, allWords[all](n));
    }
    $('all').showModal();
  }

  /** The offered jobs for which the action is still possible. */
  eligible(name) {
    return this.offered.filter((entry) => this.jobs.get(entry.id) && allowed(entry, name));
  }

  async isConfirmed(name) {
    const n = this.eligible(name).length;
    const question = questions[name];
    if (!question || n < question.from) return true;
    return confirmed(question.title(count(n, 'job')), question.text, allWords[name](n));
  }

  async runAll(name) {
    if (!await this.isConfirmed(name)) return;
    const waiting = this.eligible(name);
    const all = waiting.length;
    let failed = 0;
    const work = async () => {
      for (let entry = waiting.shift(); entry; entry = waiting.shift()) {
        try {
          await (name === 'forget' ? this.purge(entry) : this[name](entry));
        } catch (problem) {
          if (problem.status === 404) this.jobs.remove(entry.id);
          else failed += 1;
        }
      }
    };
    await Promise.all(Array.from({ length: changesAtOnce }, work));
    const jobs = count(all, 'job');
    toast(failed ? `${number.format(failed)} of ${jobs} could not be changed.` : `${jobs} changed.`);
  }

  /** Runs an action if the job's phase allows it. */
  async run(name, entry) {
    if (!entry || !allowed(entry, name)) return;
    try {
      await this[name.replace(/-./, (match) => match[1].toUpperCase())](entry);
    } catch (problem) {
      this.reportFailure(problem, entry);
    }
  }

  reportFailure(problem, entry) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status === 404) this.jobs.remove(entry.id);
    toast(problem.status === 404 ? 'The service no longer has this job.' : problem.message);
  }

  async change(entry, path, options) {
    this.jobs.merge(await (await request(`jobs/${entry.id}${path}`, options)).json());
  }

  cancel(entry) {
    return this.change(entry, '', { method: 'DELETE' });
  }

  again(entry) {
    return this.change(entry, '/fetch', { method: 'POST' });
  }

  async prioritise(entry, priority) {
    const patch = asJSON('PATCH', { priority }, 'application/merge-patch+json');
    try {
      await this.change(entry, '', patch);
    } catch (problem) {
      this.reportFailure(problem, entry);
    }
  }

  async forget(entry) {
    const text = `${cut(entry.name, 80)}: the job and its image are deleted from the service.`;
    if (await confirmed('Forget this job?', text, 'Forget')) await this.purge(entry);
  }

  async purge(entry) {
    await request(`jobs/${entry.id}?purge=true`, { method: 'DELETE' });
    this.jobs.remove(entry.id);
  }

  /** Opens the menu with a job's actions, for rows that have no space for buttons. */
  menu(entry) {
    this.chosen = entry;
    setText($('menu-title'), cut(entry.name, 120));
    setText($('menu-text'), `${phaseWords[entry.job.phase]} · ${summary(entry)[0]}`);
    for (const button of $('menu').querySelectorAll('[data-do]')) {
      button.hidden = !allowed(entry, button.dataset.do);
      if (button.dataset.do === 'open') setText(button, openWord('image'));
    }
    $('menu').showModal();
  }

  /** Opens the image in a new tab. With a token, which a link can't send, saves it as a file. */
  async open(entry) {
    const link = document.createElement('a');
    link.rel = 'noreferrer noopener';
    if (access.token) {
      const blob = await (await request(imagePath(entry.job))).blob();
      link.href = URL.createObjectURL(blob);
      link.download = `${entry.id}.${entry.job.image.format}`;
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    } else {
      link.href = imagePath(entry.job);
      link.target = '_blank';
    }
    link.click();
  }

  copyId(entry) {
    return copy(entry.id, 'The id');
  }

  details(entry) {
    this.onDetails(entry);
  }
}
